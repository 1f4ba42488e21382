package cilium

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestUnfitInDocs: docs/networks.md lists the values of the chart with which Cilium was run next to another network,
// and each other value is refused.
func TestUnfitInDocs(t *testing.T) {
	page, err := os.ReadFile("../../../docs/networks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| subject | values of the chart |")
	table, _, _ = strings.Cut(table, "\n\n")
	var listed []string
	for _, match := range regexp.MustCompile("`([^`]+=[^`]+)`").FindAllStringSubmatch(table, -1) {
		listed = append(listed, match[1])
	}
	refused := []string{"ipam.mode=cluster-pool", "cni.chainingMode=none", "kubeProxyReplacement=false",
		"nodeinit.enabled=false"}
	for _, trait := range traits() {
		if trait.hint != "labels=" {
			refused = append(refused, trait.hint)
		}
	}
	slices.Sort(listed)
	slices.Sort(refused)
	if refused = slices.Compact(refused); !slices.Equal(listed, refused) {
		t.Errorf("the page lists\n%q\nand the driver asks for\n%q", listed, refused)
	}
}

// TestNeverRun: a feature that was never run next to another network is named with its key, whatever it was called.
func TestNeverRun(t *testing.T) {
	for key, want := range map[string]string{
		"enable-hubble":                "with Hubble (enable-hubble)",
		"enable-bgp-control-plane":     "with BGP (enable-bgp-control-plane)",
		"enable-egress-gateway":        "with egress gateways (enable-egress-gateway)",
		"enable-ipv4-egress-gateway":   "with egress gateways (enable-ipv4-egress-gateway)",
		"enable-bandwidth-manager":     "with limits of pods' bandwidth (enable-bandwidth-manager)",
		"enable-l2-announcements":      "with addresses of Services that its nodes announce (enable-l2-announcements)",
		"enable-local-redirect-policy": "with local redirects (enable-local-redirect-policy)",
		"enable-sctp":                  "with SCTP (enable-sctp)",
	} {
		if got := (settings{key: "true"}).neverRun(); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %q", key, got)
		}
		if got := (settings{key: "false"}).neverRun(); len(got) > 0 {
			t.Errorf("%s is off, and it says %q", key, got)
		}
	}
}
