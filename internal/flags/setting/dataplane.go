package setting

// Setting is a knob and a value for it.
type Setting struct {
	Knob  string `json:"knob"`
	Value string `json:"value"`
}

// Dataplane is what makes Calico use a data plane on a node: the settings in the order in which they are made; they are
// taken back in the opposite order. One that Calico cannot change node by node is refused.
func (c *Catalogue) Dataplane(name string) ([]Setting, error) {
	switch name {
	case "iptables":
		return []Setting{{"calico/bpfEnabled", "false"}, {"calico/nftablesMode", "Disabled"}}, nil
	case "nftables":
		return []Setting{{"calico/bpfEnabled", "false"}, {"calico/nftablesMode", "Enabled"}}, nil
	case "ebpf":
		return []Setting{{"calico/bpfEnabled", "true"}}, nil
	case "vpp":
		return nil, fail("install VPP on new nodes, and move the workloads there",
			"VPP takes the place of Felix' Linux data plane with a DaemonSet of its own (calico-vpp) that owns the uplink: it is not switched on a running node")
	case "hns":
		return nil, fail("set Installation.spec.calicoNetwork.windowsDataplane for the Windows nodes of the cluster",
			"HNS is the only data plane of Windows nodes, and Linux nodes do not have it")
	}
	return nil, fail("one of iptables, nftables, ebpf", "%q is no data plane of Calico", name)
}
