package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// retry is a step with failed tests that are run once more.
type retry struct {
	step  step
	tests map[string][]string // by package
}

// maxRetries is the maximum number of tests that are run once more. If more have failed, the machine is not to blame. A disk
// that is slow makes some eight fail: those with etcd.
const maxRetries = 10

// onlyTests reports whether nothing but tests has failed: the machine is never to blame for a data race, a panic, a time limit or a
// build.
func (all result) onlyTests() bool { return len(all.tests) > 0 && !all.broken }

// retryLater schedules tests of a step to be run once more.
func (r *report) retryLater(s step, tests map[string][]string) {
	r.mu.Lock()
	r.retries = append(r.retries, retry{s, tests})
	r.mu.Unlock()
	r.printf("    to run once more, alone: %s\n", strings.Join(names(tests), ", "))
}

// names returns tests with their packages.
func names(tests map[string][]string) (all []string) {
	for _, pkg := range slices.Sorted(maps.Keys(tests)) {
		for _, test := range tests[pkg] {
			all = append(all, strings.TrimPrefix(pkg, modulePath)+" "+test)
		}
	}
	return all
}

// runAgain runs once more the tests that have failed in parallel with others. It is called when all steps have finished.
func (r *report) runAgain(ctx context.Context) {
	var all []string
	for _, a := range r.retries {
		all = append(all, names(a.tests)...)
	}
	for _, a := range r.retries {
		name := a.step.name + ", once more: " + strings.Join(names(a.tests), ", ")
		if len(all) > maxRetries {
			r.endStep(name, fmt.Errorf("%d tests have failed, which is more than are run once more", len(all)), 0, 0)
			continue
		}
		r.fails, r.reasons = slices.DeleteFunc(r.fails, a.has), slices.DeleteFunc(r.reasons, a.has)
		r.printf("--- %s\n", name)
		began := time.Now()
		var cpu time.Duration
		var err error
		for pkg, tests := range a.tests {
			_, failed := a.step.only(pkg, tests).once(ctx, r, &cpu)
			err = errors.Join(err, failed)
		}
		r.endStep(name, err, time.Since(began), cpu)
		if err == nil {
			r.luck = append(r.luck, names(a.tests)...)
		}
	}
}

// has reports whether a line, such as the last one of a package as printed by go test, is of a package whose tests are run once more.
func (a retry) has(line string) bool {
	fields := strings.Fields(line) // FAIL, package, seconds
	return len(fields) > 1 && a.tests[fields[1]] != nil
}

// only returns the step for some tests of one package.
func (s step) only(pkg string, tests []string) step {
	flags := s.argv[:slices.IndexFunc(s.argv, isPackage)]
	s.argv = append(slices.Clone(flags), "-count=1", "-run", "^("+strings.Join(tests, "|")+")$", pkg)
	s.retries = false
	return s
}
