package setting_test

import (
	"slices"
	"testing"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/flags/setting"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
)

// TestCharts: of what Cilium's charts make nothing is wrong, and no key is unknown but those that its command reference
// leaves out.
func TestCharts(t *testing.T) {
	for version, want := range map[string][]string{
		"v1.16.5": {"bpf-lb-sock-terminate-pod-connections", "custom-cni-conf", "enable-k8s-networkpolicy",
			"enable-runtime-device-detection", "proxy-initial-fetch-timeout"},
		"v1.19.0": {"custom-cni-conf", "enable-k8s-networkpolicy", "enable-non-default-deny-policies",
			"enable-source-ip-verification"},
	} {
		var unknown []string
		for _, f := range setting.Read(cnitest.Snapshot(t, cnitest.Cilium(t, version)), nil).Lint() {
			if f.ID == "flags/unknown" && f.Severity == finding.Info {
				unknown = append(unknown, f.Evidence["setting"].(string))
			} else {
				t.Errorf("%s: %s %s: %s", version, f.Severity, f.ID, f.Message)
			}
		}
		slices.Sort(unknown)
		if !slices.Equal(unknown, want) {
			t.Errorf("%s: unknown are %q", version, unknown)
		}
	}
}
