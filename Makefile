# The commands of this project; `make help` lists them.
SIMRUN := bin/simrun
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.7.0
ARGS ?=

.PHONY: help run test bench lint screenshots build prerequisites clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: prerequisites build ## run the core suite with seed 1; ARGS="..." are further arguments of simrun run
	@$(SIMRUN) run --seed 1 $(ARGS)

test: prerequisites ## run all tests, with the race detector
	@scripts/install-prerequisites.sh --browser
	@# The live engine is judged by the wall clock, so its tests have the machine to themselves.
	go test -race -p 1 -timeout 20m ./sim/live ./docs/guide
	go test -race -timeout 20m $$(go list ./... | grep -v -e '/sim/live$$' -e '/docs/guide$$')

bench: prerequisites ## measure; docs/figures.md says how to read the figures
	go test ./sim/virtual -run 'TestBench$$' -count 1 -timeout 60m -v -slices 5 -statements 5000
	go test ./sim/live -run 'TestBench$$' -count 1 -timeout 60m -v -slices 5 -statements 5000 -failovers 50

lint: ## gofmt, go vet, staticcheck
	@files=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$files" ]; then echo "not gofmt'ed: $$files"; exit 1; fi
	go vet ./...
	go run $(STATICCHECK) ./...

screenshots: build ## make the pictures in docs/screenshots anew, from a failing and a passing run
	@scripts/install-prerequisites.sh --browser
	@go run ./docs/screenshots -simrun $(SIMRUN)

build: ## build bin/simrun
	@go build -o $(SIMRUN) ./cmd/simrun

prerequisites: ## install Postgres and PgBouncer from the distribution's packages where they are missing
	@scripts/install-prerequisites.sh

clean: ## remove what was built and the results of runs
	rm -rf bin simrun-out
