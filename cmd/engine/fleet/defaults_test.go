package main

import (
	"reflect"
	"testing"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/etcd"
)

// TestTheDefaultsOfTheClusterBlockAreThoseOfWhatItConfigures holds facts equal that package config cannot import:
// it links no client of etcd.
func TestTheDefaultsOfTheClusterBlockAreThoseOfWhatItConfigures(t *testing.T) {
	if config.DefaultClusterPrefix != etcd.DefaultPrefix {
		t.Errorf("prefix is %q by default, and %q in etcd", config.DefaultClusterPrefix, etcd.DefaultPrefix)
	}
	if config.DefaultClusterTTL != coord.DefaultTTL || config.MinClusterTTL != coord.MinTTL {
		t.Errorf("ttl is %v by default and at least %v, and %v and %v in coord", config.DefaultClusterTTL, config.MinClusterTTL, coord.DefaultTTL, coord.MinTTL)
	}
	for field, want := range map[string][3]string{
		"Prefix": {config.DefaultClusterPrefix},
		"TTL":    {"5s", "2s", "5m"},
	} {
		f, _ := reflect.TypeFor[config.Cluster]().FieldByName(field)
		if got := [3]string{f.Tag.Get("default"), f.Tag.Get("min"), f.Tag.Get("max")}; got != want {
			t.Errorf("the documentation of %s has %q, want %q", field, got, want)
		}
	}
	if config.DefaultClusterTTL.String() != "5s" || config.MinClusterTTL.String() != "2s" || config.MaxClusterTTL.String() != "5m0s" {
		t.Error("the documentation of ttl has other bounds than the configuration")
	}
}
