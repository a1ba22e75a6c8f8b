//go:build linux

package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// kubeletSide returns the side of the kubelet's prober, with tcp or http probes.
func (b *bench) kubeletSide(kind string) side {
	return side{"kubelet", func(ctx context.Context) (*prober, error) {
		if err := b.findKubelet(ctx); err != nil {
			return nil, err
		}
		cmd := exec.CommandContext(ctx, b.kubelet, "-"+kind, "-pods", fmt.Sprint(b.rate), "-port", fmt.Sprint(b.target))
		var ready counts
		c, err := start(ctx, "kubelet", cmd, &ready)
		if err != nil {
			return nil, err
		}
		return &prober{pid: c.pid(), well: c.fine, end: c.end}, nil
	}}
}

// findKubelet builds the program that runs the kubelet's prober. It takes minutes
// the first time.
func (b *bench) findKubelet(ctx context.Context) (err error) {
	if b.kubelet == "" {
		b.kubelet, err = b.build(ctx, filepath.Join(b.root, "tests", "oracle"), "./benchprober")
	}
	return err
}
