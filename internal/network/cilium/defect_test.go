package cilium

import "testing"

// TestStale: the defect is reported for the releases and the settings that have it.
func TestStale(t *testing.T) {
	for _, test := range []struct {
		name, version string
		settings      settings
		want          bool
	}{
		{"the chart's defaults", "v1.20.2", settings{"bpf-lb-sock": "false", "kube-proxy-replacement": "false"}, true},
		{"the first release", "v1.20.0", nil, true},
		{"a release before", "v1.19.6", nil, false},
		{"a release after", "v1.20.3", nil, false},
		{"no version", "latest", nil, false},
		{"sockets", "v1.20.2", settings{"bpf-lb-sock": "true"}, false},
		{"in place of kube-proxy", "v1.20.2", settings{"kube-proxy-replacement": "true"}, false},
		{"sockets of the host's namespace only",
			"v1.20.2", settings{"bpf-lb-sock": "true", "bpf-lb-sock-hostns-only": "true"}, true},
		{"SCTP", "v1.20.2", settings{"kube-proxy-replacement": "true", "enable-sctp": "true"}, true},
		{"Envoy configurations", "v1.20.2", settings{"bpf-lb-sock": "true", "enable-envoy-config": "true"}, true},
		{"Gateway API", "v1.20.2", settings{"bpf-lb-sock": "true", "enable-gateway-api": "true"}, true},
		{"Ingress", "v1.20.2", settings{"bpf-lb-sock": "true", "enable-ingress-controller": "true"}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := test.settings.stale(test.version); (got != nil) != test.want {
				t.Errorf("the defect is %+v", got)
			}
		})
	}
}
