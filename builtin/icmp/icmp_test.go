package icmpprobe_test

import (
	"strings"
	"testing"

	icmpprobe "github.com/sonde-probe/sonde/builtin/icmp"
	"github.com/sonde-probe/sonde/probe"
)

func TestWrongConfigurationsAreErrors(t *testing.T) {
	for want, c := range map[string]icmpprobe.Config{
		"":                                       {Host: "10.0.0.1", PayloadSize: 16, TTL: 255, DontFragment: true, Addresses: "all", IPFamily: "4", SourceAddress: "10.0.0.2"},
		"payload_size is 15; it must be from 16": {PayloadSize: 15},
		"payload_size is 65508":                  {PayloadSize: 65_508},
		"ttl is 256":                             {TTL: 256},
		"ttl is -1":                              {TTL: -1},
		"addresses is \"most\"":                  {Addresses: "most"},
		"ip_family is \"5\"":                     {IPFamily: "5"},
		"host is 224.0.0.1, to which many hosts": {Host: "224.0.0.1"},
		"host is ff02::1%lo, to which many hosts": {Host: "ff02::1%lo"},
		"host is 255.255.255.255, to which many":  {Host: "255.255.255.255"},
		"host is \"::\", which is not an address": {Host: "::"},
		"source_address is \"x\"":                 {SourceAddress: "x"},
	} {
		_, err := icmpprobe.New(c)
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", c, err, want)
		}
	}
}

func TestTargetsAreChecked(t *testing.T) {
	made, err := icmpprobe.New(icmpprobe.Config{IPFamily: "4"})
	if err != nil {
		t.Fatal(err)
	}
	h := made.(interface {
		probe.EndpointHandler
		Check(probe.Target) error
	})
	for address, want := range map[string]string{
		"10.0.0.7": "", "router.example.com": "",
		"":          "has no address",
		"fd00::1":   "ip_family",
		"224.0.0.1": "many hosts reply",
	} {
		err := h.Check(probe.Target{Name: "router", Address: address})
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", address, err, want)
		}
	}
	// A machine replies whether or not the container whose ports it publishes is running.
	published := probe.Target{Name: "router", Address: "127.0.0.1", Ports: map[string]uint16{"80": 8080}}
	if res := made.Probe(t.Context(), published); res.Outcome != probe.Unknown || !strings.Contains(res.Detail, "publishes its ports") {
		t.Errorf("a published container: %+v", res)
	}
	if got := h.Endpoint(probe.Target{Address: "10.0.0.7"}); got != "10.0.0.7:0" {
		t.Errorf("the endpoint is %q", got)
	}
}
