# `make` lists what there is to make. Everything else is in the scripts and crates that it names.

PREFIX ?= /usr/local
TRIPLE := $(shell uname -m)-unknown-linux-gnu
TARGET := $(or $(CARGO_TARGET_DIR),target)
SLIPWAY := $(TARGET)/$(TRIPLE)/release/slipway
QUERY := $(TARGET)/$(TRIPLE)/release/slipway-query
S3 := $(TARGET)/$(TRIPLE)/release/slipway-s3
# Labs need root. Cargo itself runs as you, so that no file of root's lands in target/; what it builds runs through sudo.
ifneq ($(shell id -u),0)
SUDO := sudo --preserve-env
export CARGO_TARGET_$(shell echo $(TRIPLE) | tr a-z- A-Z_)_RUNNER := $(SUDO)
endif

.DEFAULT_GOAL := help
.PHONY: help hooks setup setup-bench setup-lint build bpf demo demo-campaign test test-long test-vm fuzz fuzz-replay lint lint-code lint-docs check-aarch64 audit doc bench man install clean

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 16

setup: ## install what building, running and testing need (Debian packages, only those missing)
	scripts/setup.sh build run test

setup-bench: ## the same for `make bench` and the OpenFOAM example (large)
	scripts/setup.sh build run test bench

setup-lint: ## install the programs of `make lint`
	scripts/setup.sh lint

build: ## build the release binaries
	cargo build --release --locked --package slipway --package slipway-query --package slipway-s3
	ln -f $$(scripts/verbs.sh --release) $(TARGET)/$(TRIPLE)/release/

bpf: ## compile the BPF programs again, after a change to them (Debian's clang)
	scripts/setup.sh bpf
	scripts/bpf.sh

demo: setup build ## compare what six container networks cost a real parallel program
	$(SUDO) $(SLIPWAY) compare examples/demo.yaml \
	  --drivers host,bridge,ovs,macvlan,vxlan,fast --jobs iperf3,job --streams 1 --time 1s

demo-campaign: setup build ## run eight years of a small office in EnergyPlus, and draw the results
	$(SUDO) $(SLIPWAY) campaign run examples/campaigns/office/campaign.yaml
	$(SUDO) $(SLIPWAY) campaign report examples/campaigns/office/campaign.yaml

test: setup ## run all tests
	cargo test --workspace --locked --no-fail-fast

test-long: setup-bench ## run the tests that `make test` leaves out: large programs, many connections, an attacker for a minute, reference values
	cargo test --package slipway --locked --test fast_faults --test fast_flows --test servers --test erlang --test upstream --test attacker --test machines_compare --test machines_whole -- --ignored
	cargo test --package slipway --locked --test transfer -- --ignored
	cargo test --package slipway-verbs --locked --test broker -- --ignored
	cargo test --package slipway --locked --test programs -- --ignored large_examples mpich_of_today
	cargo build --locked --package slipway-s3 --package slipway-query
	cargo test --package slipway --locked --test campaign_faults --test campaign_s3 --test campaign_slurm --test machines_faults -- --ignored --nocapture
	cargo test --package slipway --locked --test campaign_engines -- --ignored
	scripts/reference-designs.py check

test-vm: setup ## run what depends on the kernel in a virtual machine with Debian's own
	scripts/setup.sh vm
	$(SUDO) scripts/test-vm.sh

fuzz: ## give the parsers input that nobody wrote, a minute each (nightly toolchain)
	scripts/setup.sh build fuzz
	scripts/fuzz.sh 60

fuzz-replay: ## the same with the files of the tests and what fuzzing found here, once
	scripts/fuzz.sh replay

lint: lint-code setup-lint lint-docs ## check formatting, lints, documentation, BPF objects, dependencies and their licences
	scripts/bpf.sh check
	cargo machete
	cargo deny check bans licenses sources

audit: setup-lint ## check dependencies against RustSec's advisories (fetched from GitHub)
	cargo deny check advisories

lint-code: doc ## the part of `lint` that needs nothing but the toolchain
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

# Globs and not git, so that an exported tree is checked too. `crate` is a word here, which codespell takes for `create`.
DOCS = $(wildcard *.md docs/*.md docs/*/*.md examples/*.md examples/*/*.md)
lint-docs: ## check the links and the spelling of the documents
	@python3 -B -m doctest scripts/check-links.py
	@scripts/hooks/test.sh
	@scripts/check-links.py $(DOCS)
	@! grep -nE '^(<{7}|>{7})( |$$)' $(DOCS)
	@codespell --ignore-words-list crate $(DOCS) Makefile scripts docs/lab.schema.json

hooks: ## have git check each commit message (area: imperative, at most 72 characters)
	git config core.hooksPath scripts/hooks

# Nothing is linked, so what dependencies have in C (zstd) need not be compiled, and no cross compiler is needed.
check-aarch64: ## the clippy of `lint` for 64-bit ARM, whose call numbers and types differ
	rustup target add aarch64-unknown-linux-gnu
	CC_aarch64_unknown_linux_gnu=true AR_aarch64_unknown_linux_gnu=true \
	  cargo clippy --workspace --all-targets --locked --target aarch64-unknown-linux-gnu -- -D warnings

# Private items are documented too, so links to them lead somewhere.
doc: ## build the documentation of the crates; warnings are errors
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --workspace --no-deps --document-private-items --locked

bench: setup-bench ## measure what docs/benchmarks.md records (an hour, on an idle machine)
	cargo bench --package slipway --bench bench --locked

man: build ## write the manual pages to target/man
	$(SLIPWAY) man $(TARGET)/man

# Builds nothing, so that `sudo make install` leaves no file of root's in target/.
install: ## install program, manual pages and completions below PREFIX (/usr/local); after `make man`
	install -D -m 0755 $(SLIPWAY) $(DESTDIR)$(PREFIX)/bin/slipway
	install -D -m 0755 $(QUERY) $(DESTDIR)$(PREFIX)/bin/slipway-query
	install -D -m 0755 $(S3) $(DESTDIR)$(PREFIX)/bin/slipway-s3
	install -D -m 0755 -t $(DESTDIR)$(PREFIX)/lib/slipway $(TARGET)/$(TRIPLE)/release/libslipway-rdmav*.so $(TARGET)/$(TRIPLE)/release/slipway-carrier $(TARGET)/$(TRIPLE)/release/slipway-gateway
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	sed 's|/usr/local|$(PREFIX)|' share/systemd/slipway-agent.service > $(DESTDIR)$(PREFIX)/lib/systemd/system/slipway-agent.service
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 0644 $(TARGET)/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(addprefix $(DESTDIR)$(PREFIX)/share/,bash-completion/completions zsh/site-functions fish/vendor_completions.d)
	$(SLIPWAY) completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/slipway
	$(SLIPWAY) completion zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_slipway
	$(SLIPWAY) completion fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/slipway.fish

clean: ## remove what was built
	cargo clean
