"""Backup and restore commands under load, killed with SIGKILL and given places that fail: is a
partial backup or restore ever accepted, is a restored group another one than at its index?"""
