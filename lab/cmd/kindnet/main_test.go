package main

import (
	"encoding/json"
	"testing"
)

// TestConflist: a runtime can read what is written, with and without a known MTU.
func TestConflist(t *testing.T) {
	for _, mtu := range []int{0, 1500} {
		var read struct {
			Name    string
			Plugins []struct {
				Type string
				MTU  int
				IPAM struct{ Ranges [][]struct{ Subnet string } }
			}
		}
		text := conflist("10.244.1.0/24", mtu)
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		if read.Name != "kindnet" || len(read.Plugins) != 2 || read.Plugins[0].Type != "ptp" ||
			read.Plugins[0].MTU != mtu || read.Plugins[0].IPAM.Ranges[0][0].Subnet != "10.244.1.0/24" {
			t.Errorf("read as %+v: %s", read, text)
		}
	}
}
