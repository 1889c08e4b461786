# Thin: everything is done by ./dev.
.PHONY: all debug check-deps test demo bench bundle fmt clean

all:
	@./dev build

debug:
	@./dev build debug

check-deps test demo bench bundle fmt clean:
	@./dev $@
