package cilium

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/network/cni"
)

// settings are the keys of cilium-config.
type settings map[string]string

func read(config *corev1.ConfigMap) settings {
	if config == nil {
		return nil
	}
	return config.Data
}

// scripted adds the settings that releases before 1.14 pass to their script instead: the name of the CNI configuration,
// and whether it renames other configurations.
func (s settings) scripted(hook []string) settings {
	text := strings.Join(hook, " ")
	if !strings.Contains(text, installScript) {
		return s
	}
	all := maps.Clone(s)
	if all == nil {
		all = settings{}
	}
	if all["write-cni-conf-when-ready"] == "" {
		all["write-cni-conf-when-ready"] = confDir + "05-cilium.conf"
	}
	all["cni-exclusive"] = strconv.FormatBool(!strings.Contains(text, "--cni-exclusive=false"))
	return all
}

func (s settings) on(key string) bool { return s[key] == "true" }

// mode is the encapsulation between nodes: "vxlan", "geneve" or "none". Up to 1.13 a single key set it.
func (s settings) mode() string {
	switch old := s["tunnel"]; {
	case old == "disabled" || s["routing-mode"] == "native":
		return "none"
	case old != "":
		return old
	}
	return cmp.Or(s["tunnel-protocol"], "vxlan")
}

// port is the UDP port of the tunnels.
func (s settings) port() int {
	if port, err := strconv.Atoi(s["tunnel-port"]); err == nil && port > 0 {
		return port
	}
	return map[string]int{"vxlan": 8472, "geneve": 6081}[s.mode()]
}

// replaces reports whether the agent does kube-proxy's work; "partial" and "probe" do a part of it.
func (s settings) replaces() bool {
	return !slices.Contains([]string{"", "false", "disabled"}, s["kube-proxy-replacement"])
}

// pools returns the ranges of the IPAM mode cluster-pool.
func (s settings) pools() []string {
	var all []string
	for _, family := range []string{"ipv4", "ipv6"} {
		if family == "ipv6" && !s.on("enable-ipv6") {
			continue
		}
		for _, cidr := range strings.FieldsFunc(s["cluster-pool-"+family+"-cidr"],
			func(r rune) bool { return r == ' ' || r == ',' }) {
			if prefix, err := netip.ParsePrefix(cidr); err == nil {
				all = append(all, prefix.Masked().String())
			}
		}
	}
	return all
}

// confName is the CNI configuration that the agent writes when it is ready.
func (s settings) confName() string {
	if name := s["write-cni-conf-when-ready"]; name != "" {
		return strings.TrimSuffix(path.Base(name), cni.StagedSuffix)
	}
	return defaultConf
}

func (s settings) capabilities() cni.Capabilities {
	caps := cni.Capabilities{
		CIDRSource: "pool", Encapsulation: s.mode(),
		HostLinks:         []string{"cilium_host", "cilium_net", "lxc*"},
		RouteTables:       slices.Clone(tables),
		ReplacesKubeProxy: s.replaces(),
		ConfName:          s.confName(),
		Policy:            cni.PolicyCilium,
		// With cni-exclusive the agent renames the configurations of other networks.
		SwitchedPerNode: !s.on("cni-exclusive"),
	}
	if s.on("enable-ipsec") {
		caps.RouteTables = append(caps.RouteTables, tableIPsec)
	}
	if s["ipam"] == "kubernetes" {
		caps.CIDRSource = "node"
	}
	if s["enable-policy"] == "never" {
		caps.Policy = cni.PolicyNone
	}
	if mode := s.mode(); mode != "none" {
		caps.Port, caps.Overhead = s.port(), 50
		caps.HostLinks = append(caps.HostLinks, "cilium_"+mode)
		if mode == "vxlan" { // the VNI of a packet is the identity of its sender; 2 is the node itself
			caps.VNI, caps.WholePort = 2, true
		}
	}
	// the setting is the MTU of the links between nodes
	if mtu, err := strconv.Atoi(s["mtu"]); err == nil && mtu > caps.Overhead {
		caps.MTU = mtu - caps.Overhead
	}
	return caps
}

// odd reports settings with which Cilium is not the only network of the cluster's pods.
func (s settings) odd() []string {
	var problems []string
	if mode := s["cni-chaining-mode"]; mode != "" && mode != "none" {
		problems = append(problems, fmt.Sprintf("Cilium is chained behind another network here (cni-chaining-mode "+
			"%s), which gives pods their addresses", mode))
	}
	if s.on("custom-cni-conf") {
		problems = append(problems, "Cilium writes no CNI configuration (custom-cni-conf), so it serves no new pod: a "+
			"move to Cilium was begun, or another program writes the configuration")
	}
	switch mode := cmp.Or(s["ipam"], "cluster-pool"); mode {
	case "cluster-pool":
		if len(s.pools()) == 0 {
			problems = append(problems, "cluster-pool-ipv4-cidr of "+configName+
				" names no range, so Theseus does not know Cilium's pod addresses")
		}
	case "kubernetes":
	default:
		problems = append(problems,
			fmt.Sprintf("Cilium gets its addresses from ipam %s, so Theseus does not know their ranges", mode))
	}
	return problems
}
