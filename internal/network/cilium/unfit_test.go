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
