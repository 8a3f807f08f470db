"""LEARNER: models for rows, fitted from means over bags."""
