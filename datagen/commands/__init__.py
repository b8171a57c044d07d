"""The subcommands of `strata` that datagen owns, a module each: arguments in, words or JSON out."""
