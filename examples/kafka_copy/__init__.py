"""The parts of from_kafka.py: a Kafka broker, the Spark programs, and what has to hold in the
end."""
