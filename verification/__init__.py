"""What only verifies the product: it lies in the checkout, above everything, and in no wheel."""
