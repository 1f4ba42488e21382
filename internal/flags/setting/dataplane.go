package setting

// Setting is a knob and a value for it.
type Setting struct {
	Knob  string `json:"knob"`
	Value string `json:"value"`
}

// Dataplane returns the settings that make Calico use a data plane on a node, in the order in which they are applied;
// they are reverted in the opposite order. It refuses a data plane that Calico cannot change node by node.
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
			"VPP replaces Felix's Linux data plane with a separate DaemonSet (calico-vpp) that owns the uplink: a "+
				"running node cannot be switched to it")
	case "hns":
		return nil, fail("set Installation.spec.calicoNetwork.windowsDataplane for the Windows nodes of the cluster",
			"HNS is the only data plane of Windows nodes, and is not available on Linux nodes")
	}
	return nil, fail("one of iptables, nftables, ebpf", "%q is not a data plane of Calico", name)
}
