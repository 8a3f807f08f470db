"""``python -m bagwise`` is the command."""

if __name__ == "__main__":
    from bagwise_command import main

    main()
