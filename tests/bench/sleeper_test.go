//go:build linux

package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestSleeperWokenOnTimeIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		s := &sleeper{}
		go s.sleep(ctx)
		time.Sleep(100*nap + nap/2)
		stop()
		synctest.Wait()
		if n, p99 := len(s.late), s.read(); n != 100 || p99 != 0 {
			t.Errorf("%d naps, late by %v", n, p99)
		}
		time.Sleep(nap) // so that it is recorded
	})
}

func TestSleeperForgetsWhatWasRead(t *testing.T) {
	s := &sleeper{}
	for i := range 100 {
		s.late = append(s.late, time.Duration(100-i)*time.Millisecond)
	}
	if first, second := s.read(), s.read(); first != 99*time.Millisecond || second != 0 {
		t.Errorf("late by %v, and after that by %v", first, second)
	}
}
