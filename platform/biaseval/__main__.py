"""What ``biaseval`` and ``python -m biaseval`` run: the command line."""

import signal


def start() -> None:
    """Import and run the command line. An interrupt ends an import at once, without a traceback or unheard."""
    kept = signal.getsignal(signal.SIGINT)
    if kept is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from biaseval.cli import main

    signal.signal(signal.SIGINT, kept)
    main()


if __name__ == "__main__":
    start()
