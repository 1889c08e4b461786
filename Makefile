# A thin wrapper around ./dev.
.PHONY: all debug install check-deps test demo bench python bundle fmt clean test-client test-clean

all:
	@./dev build

debug:
	@./dev build debug

# PREFIX and DESTDIR as usual.
PREFIX ?= /usr/local
install: all
	@DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(PREFIX)"

check-deps test demo bench python bundle fmt clean:
	@./dev $@

# A parent and a child share memory through a file in ./test_mount; test-clean removes a leftover mount.
test-client: all
	@examples/test_client.sh

test-clean:
	@examples/test_client.sh --clean
