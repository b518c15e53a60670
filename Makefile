# Two commands do everything: `make demo` and `make test`. Build output stays out of the checkout.
CACHE ?= $(or $(FLOWGAUGE_CACHE),$(HOME)/.cache/flowgauge)
export FLOWGAUGE_CACHE := $(CACHE)
export CARGO_TARGET_DIR ?= $(CACHE)/target
CARGO ?= cargo
# Not by `cargo run`: with its variables in the environment the cargo within would build dependencies again.
XTASK := $(CARGO) build --quiet --bin xtask && $(CARGO_TARGET_DIR)/debug/xtask
SETUP := xtask/checkout.sh "$(CARGO_TARGET_DIR)" && xtask/setup.sh

.PHONY: help demo build capi mapi shim install install-files deb test lint docs bench fuzz clean

help:
	@echo 'make demo     install what is missing, build, run the main job on a generated trace'
	@echo 'make test     build and run all tests (installs what they need)'
	@echo 'make build    build the release binary'
	@echo 'make capi     build libscap (scap.h for C programs, shared and static)'
	@echo 'make mapi     build libmapi (mapi.h for C programs, shared and static)'
	@echo 'make shim     build libflowgauge_pcap (locality buffering in front of libpcap)'
	@echo 'make install  build all four and install them under PREFIX (default /usr/local; DESTDIR for packages)'
	@echo 'make deb      build all four as a Debian package (into OUT, default beside what is built)'
	@echo 'make lint     formatting and clippy, warnings denied'
	@echo 'make docs     API documentation, warnings denied'
	@echo 'make bench    compare with other tools; writes docs/benchmarks.md'
	@echo 'make fuzz     coverage-guided fuzzing (FUZZ_SECONDS per target, default 60)'

demo:
	@echo 'building; the first time takes some minutes'
	@$(SETUP) build
	@$(XTASK) demo

build:
	@$(SETUP) build
	$(CARGO) build --release --package flowgauge-cli

# Without its Rust face, beside which cargo does not optimise across crates.
capi:
	@$(SETUP) build
	$(CARGO) rustc --release --package flowgauge-capi --lib --crate-type cdylib,staticlib

mapi:
	@$(SETUP) build
	$(CARGO) rustc --release --package flowgauge-libmapi --lib --crate-type cdylib,staticlib

shim:
	@$(SETUP) build
	$(CARGO) rustc --release --package flowgauge-pcap-shim --lib --crate-type cdylib

PREFIX ?= /usr/local
# Where cargo has built what is installed.
BUILT ?= $(CARGO_TARGET_DIR)/release
install: build capi mapi shim
	@$(MAKE) --no-print-directory install-files

install-files:
	install -D -m 755 $(BUILT)/flowgauge $(DESTDIR)$(PREFIX)/bin/flowgauge
	install -D -m 755 $(BUILT)/libflowgauge_pcap.so \
		$(DESTDIR)$(PREFIX)/lib/flowgauge/libflowgauge_pcap.so
	$(BUILT)/flowgauge man --all '$(DESTDIR)$(or $(MANDIR),$(PREFIX)/share/man)/man1'
	$(BUILT)/flowgauge completions bash | \
		install -D -m 644 /dev/stdin $(DESTDIR)$(PREFIX)/share/bash-completion/completions/flowgauge
	$(BUILT)/flowgauge completions zsh | \
		install -D -m 644 /dev/stdin $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_flowgauge
	$(BUILT)/flowgauge completions fish | \
		install -D -m 644 /dev/stdin $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/flowgauge.fish
	PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' LIBDIR='$(LIBDIR)' INCLUDEDIR='$(INCLUDEDIR)' \
		crates/capi/install.sh $(BUILT)
	PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' LIBDIR='$(LIBDIR)' INCLUDEDIR='$(INCLUDEDIR)' MANDIR='$(MANDIR)' \
		crates/libmapi/install.sh $(BUILT)

deb: build capi mapi shim
	packaging/deb.sh '$(BUILT)' '$(or $(OUT),$(CARGO_TARGET_DIR))'

test:
	@$(SETUP) build test
	@$(XTASK) test

lint:
	@$(SETUP) build
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

docs:
	@$(SETUP) build
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked

bench: build
	@$(SETUP) bench
	python3 bench/run.py

FUZZ_SECONDS ?= 60
fuzz:
	@$(SETUP) build
	@$(XTASK) fuzz $(FUZZ_SECONDS)

clean:
	rm -rf $(CARGO_TARGET_DIR)
