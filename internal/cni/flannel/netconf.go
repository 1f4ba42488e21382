package flannel

import (
	"encoding/json"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// netConf is flannel's net-conf.json as far as it matters here.
type netConf struct {
	Network     string
	IPv6Network string
	EnableIPv6  bool
	Backend     backend
}

type backend struct {
	Type string
	VNI  int
	Port int
	MTU  int
}

func (c netConf) networks() []string {
	var all []string
	if c.Network != "" {
		all = append(all, c.Network)
	}
	if c.EnableIPv6 && c.IPv6Network != "" {
		all = append(all, c.IPv6Network)
	}
	return all
}

func readNetConf(config *corev1.ConfigMap) (netConf, []string) {
	conf := netConf{Backend: backend{Type: "vxlan"}}
	if config == nil {
		return conf, []string{"ConfigMap " + configMap + " is not there, so flannel's network is not known"}
	}
	where := "net-conf.json of ConfigMap " + config.Namespace + "/" + config.Name
	if err := json.Unmarshal([]byte(config.Data["net-conf.json"]), &conf); err != nil {
		return conf, []string{fmt.Sprintf("%s cannot be read: %v", where, err)}
	}
	var problems []string
	for _, network := range conf.networks() {
		if _, err := netip.ParsePrefix(network); err != nil {
			problems = append(problems, fmt.Sprintf("%s has %q as a network, which is no CIDR", where, network))
		}
	}
	if len(conf.networks()) == 0 {
		problems = append(problems, where+" names no network")
	}
	if kind := conf.Backend.Type; kind != "vxlan" && kind != "host-gw" {
		problems = append(problems, fmt.Sprintf("%s has the backend %q; only vxlan and host-gw are understood", where, kind))
	}
	return conf, problems
}

// attachment is how pods hang on flannel, as the configuration that its init container copies to nodes says; nil
// where it chains plugins that nobody tried to move a pod from.
func attachment(config *corev1.ConfigMap, confName string) *step.Attachment {
	var conf struct {
		Name    string
		Plugins []struct {
			Type     string
			Delegate struct{ Bridge string }
		}
	}
	if config == nil || json.Unmarshal([]byte(config.Data["cni-conf.json"]), &conf) != nil || conf.Name == "" || len(conf.Plugins) == 0 {
		return nil
	}
	found := &step.Attachment{
		Conf: []string{confName}, Bridge: bridge, Reservations: "/var/lib/cni/networks/" + conf.Name,
		Restore: []string{"/var/lib/cni/flannel/{id}"},
	}
	for i, plugin := range conf.Plugins {
		if i == 0 && plugin.Type != "flannel" || i > 0 && plugin.Type != "portmap" {
			return nil
		}
		if plugin.Delegate.Bridge != "" {
			found.Bridge = plugin.Delegate.Bridge
		}
	}
	return found
}

// capabilities follow from the backend; flannel's own defaults are VNI 1 on UDP port 8472.
func capabilities(conf netConf, confName string) cni.Capabilities {
	caps := cni.Capabilities{
		CIDRSource:        "node",
		KeptFirst:         2,
		KeptLast:          1,
		Encapsulation:     conf.Backend.Type,
		HostLinks:         []string{bridge},
		ConfName:          confName,
		Policy:            cni.PolicyNone,
		CanRequestAddress: true, // host-local gives what the runtime asks for
		SwitchedPerNode:   true,
	}
	switch conf.Backend.Type {
	case "vxlan":
		caps.VNI, caps.Port, caps.Overhead = orDefault(conf.Backend.VNI, 1), orDefault(conf.Backend.Port, 8472), 50
		caps.HostLinks = []string{fmt.Sprintf("flannel.%d", caps.VNI), bridge}
	case "host-gw":
		caps.Encapsulation = "none"
	}
	return caps
}

func orDefault(value, otherwise int) int {
	if value == 0 {
		return otherwise
	}
	return value
}

// podMTU is the smallest MTU that pods have on any node, or 0 when neither nodes nor configuration tell.
func podMTU(snapshot *cluster.Snapshot, conf netConf) int {
	smallest := 0
	for _, facts := range snapshot.Facts {
		for _, link := range facts.Links {
			if link.Name == bridge && link.MTU > 0 && (smallest == 0 || link.MTU < smallest) {
				smallest = link.MTU
			}
		}
	}
	if smallest == 0 && conf.Backend.MTU > 0 {
		return conf.Backend.MTU - 50
	}
	return smallest
}
