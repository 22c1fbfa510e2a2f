"""What each subcommand does; `phobos.cli` declares their options and imports them when they are called."""
