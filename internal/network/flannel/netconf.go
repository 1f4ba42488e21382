package flannel

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// netConf has the relevant parts of flannel's net-conf.json.
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
		return conf, []string{"ConfigMap " + configMap + " does not exist, so Theseus does not know flannel's network"}
	}
	where := "net-conf.json of ConfigMap " + config.Namespace + "/" + config.Name
	if err := json.Unmarshal([]byte(config.Data["net-conf.json"]), &conf); err != nil {
		return conf, []string{fmt.Sprintf("%s cannot be read: %v", where, err)}
	}
	var problems []string
	for _, network := range conf.networks() {
		if _, err := netip.ParsePrefix(network); err != nil {
			problems = append(problems, fmt.Sprintf("%s has the network %q, which is not a CIDR", where, network))
		}
	}
	if len(conf.networks()) == 0 {
		problems = append(problems, where+" names no network")
	}
	return conf, problems
}

// podConf has the relevant parts of the CNI configuration that flannel's init container copies to nodes.
type podConf struct {
	Name    string
	Plugins []struct {
		Type     string
		Delegate struct{ Bridge string }
	}
}

// plainName matches names that are valid for both interfaces and folders, without special characters.
var plainName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)

// readPodConf reads it from the ConfigMap; missing settings have upstream's defaults.
func readPodConf(config *corev1.ConfigMap) (podConf, []string) {
	usual := podConf{Name: network}
	if config == nil {
		return usual, nil // readNetConf reports the problem
	}
	conf := usual
	where := "cni-conf.json of ConfigMap " + config.Namespace + "/" + config.Name
	if text := config.Data["cni-conf.json"]; text == "" {
		return usual, nil
	} else if err := json.Unmarshal([]byte(text), &conf); err != nil {
		return usual, []string{fmt.Sprintf("%s cannot be read: %v", where, err)}
	}
	if !plainName.MatchString(conf.Name) || !plainName.MatchString(conf.bridge()) {
		return usual, []string{fmt.Sprintf("%s has the name %q and the bridge %q, which no node can have",
			where, conf.Name, conf.bridge())}
	}
	return conf, nil
}

// bridge is the bridge to which pods are attached; flannel's default is cni0.
func (c podConf) bridge() string {
	for _, plugin := range c.Plugins {
		if plugin.Delegate.Bridge != "" {
			return plugin.Delegate.Bridge
		}
	}
	return "cni0"
}

// reservations is the folder in which host-local stores the addresses of a network's pods.
func reservations(network string) string { return "/var/lib/cni/networks/" + network }

// data returns that folder if it is not the usual one.
func (c podConf) data() []string {
	if c.Name == network {
		return nil
	}
	return []string{reservations(c.Name)}
}

// chained are the plugins that follow flannel's own, except portmap.
func (c podConf) chained() []string {
	var types []string
	for _, plugin := range c.Plugins {
		types = append(types, plugin.Type)
	}
	return cni.Chained(types)
}

// attachment says how pods are attached to flannel's bridge; nil with chained plugins for which adoption was never
// tested.
func (c podConf) attachment(confName string) *step.Attachment {
	for i, plugin := range c.Plugins {
		if i == 0 && plugin.Type != "flannel" || i > 0 && plugin.Type != "portmap" {
			return nil
		}
	}
	if len(c.Plugins) == 0 {
		return nil
	}
	return &step.Attachment{
		Conf: []string{confName}, Bridge: c.bridge(), Reservations: reservations(c.Name),
		Restore: []string{"/var/lib/cni/flannel/{id}"},
	}
}

// capabilities depend on the backend; flannel's defaults are VNI 1 on UDP port 8472.
func capabilities(conf netConf, bridge, confName string) cni.Capabilities {
	caps := cni.Capabilities{
		CIDRSource:        "node",
		KeptFirst:         2,
		KeptLast:          1,
		Encapsulation:     conf.Backend.Type,
		HostLinks:         []string{bridge},
		ConfName:          confName,
		Policy:            cni.PolicyNone,
		CanRequestAddress: true, // host-local allocates a requested address
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

// Tunnels describe flannel as a part of another network, which attaches pods by other means: without a bridge.
func Tunnels(config *corev1.ConfigMap, agent *appsv1.DaemonSet, confName string) (caps cni.Capabilities,
	cidrs, problems []string) {
	conf, problems := readNetConf(config)
	caps = capabilities(conf, "", confName)
	caps.HostLinks = slices.DeleteFunc(caps.HostLinks, func(link string) bool { return link == "" })
	if agent != nil {
		caps.Masquerade = masqueraded([]*appsv1.DaemonSet{agent}, conf)
	}
	if conf.Backend.MTU > 0 {
		caps.MTU = conf.Backend.MTU - 50
	}
	return caps, conf.networks(), problems
}

func orDefault(value, otherwise int) int {
	if value == 0 {
		return otherwise
	}
	return value
}

// podMTU is the smallest MTU of pods on any node; 0 if unknown from both nodes and configuration.
func podMTU(snapshot *cluster.Snapshot, conf netConf, bridge string) int {
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
