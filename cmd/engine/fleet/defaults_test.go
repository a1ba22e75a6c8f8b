package main

import (
	"reflect"
	"testing"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/etcd"
)

// TestTheDefaultsOfTheClusterBlockAreThoseOfWhatItConfigures compares defaults that package config cannot import from their
// packages, since it does not link the client of etcd.
func TestTheDefaultsOfTheClusterBlockAreThoseOfWhatItConfigures(t *testing.T) {
	source := config.Source{Name: "config.hcl", Bytes: []byte("cluster {\n endpoints = [\"http://127.0.0.1:2379\"]\n}\n")}
	c, diags := config.Parse([]config.Source{source}, config.Options{})
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	if c.Cluster.Prefix != etcd.DefaultPrefix || c.Cluster.TTL != coord.DefaultTTL {
		t.Errorf("prefix and ttl are %q and %v by default, want %q and %v", c.Cluster.Prefix, c.Cluster.TTL, etcd.DefaultPrefix, coord.DefaultTTL)
	}
	for field, want := range map[string][2]string{
		"Prefix": {etcd.DefaultPrefix},
		"TTL":    {coord.DefaultTTL.String(), coord.MinTTL.String()},
	} {
		f, _ := reflect.TypeFor[config.Cluster]().FieldByName(field)
		if got := [2]string{f.Tag.Get("default"), f.Tag.Get("min")}; got != want {
			t.Errorf("the documentation of %s has %q, want %q", field, got, want)
		}
	}
}
