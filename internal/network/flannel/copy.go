package flannel

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
)

var _ cni.Copier = Driver{}

// areaConf is the area of flannel's settings.
const areaConf = "net-conf.json"

// netConfKey is the key of flannel's settings in its ConfigMap.
const netConfKey = areaConf

// fieldsOf are all fields of net-conf.json; nil if it cannot be read.
func fieldsOf(config *corev1.ConfigMap) map[string]any {
	var fields map[string]any
	if config == nil || json.Unmarshal([]byte(config.Data[netConfKey]), &fields) != nil {
		return nil
	}
	return fields
}

// configIn is the ConfigMap of the flannel in a cluster, and of its agents.
func configIn(s *cluster.Snapshot) *corev1.ConfigMap {
	if agents := agentsOf(s); len(agents) > 0 {
		return configOf(s, agents[0].Namespace, ownSpace, "kube-system")
	}
	return nil
}

// Copy implements cni.Copier.
func (Driver) Copy(c *cni.Copying) (*cni.Copied, error) {
	copied := &cni.Copied{}
	conf := fieldsOf(configIn(c.Original))
	var config *corev1.ConfigMap
	if c.Manifest != nil {
		wanted, err := understand(c.Manifest)
		if err != nil {
			return nil, err
		}
		config = wanted.typed()
	} else {
		config = configIn(c.Scratch)
	}
	theirs := fieldsOf(config)
	if conf == nil || theirs == nil {
		copied.Lack(areaConf, "it cannot be read in one of the two clusters: the scratch cluster's stays")
		return copied, nil
	}
	name := fmt.Sprintf("ConfigMap %s/%s", config.Namespace, config.Name)
	said := networkFor(c, conf, theirs, copied)
	if enabled, _ := conf["EnableIPv6"].(bool); enabled {
		copied.Lack("flannel's EnableIPv6", "the copy has IPv4 only")
	}
	for _, field := range []string{"EnableIPv6", "IPv6Network"} {
		delete(conf, field)
		if value, has := theirs[field]; has && c.Manifest == nil {
			conf[field] = value
		}
	}
	backend, _ := conf["Backend"].(map[string]any)
	if mtu, _ := backend["MTU"].(float64); mtu > 0 {
		if link := c.LinkMTU(); link > 0 && int(mtu) > link {
			delete(backend, "MTU")
			copied.Lack(fmt.Sprintf("flannel's MTU %d", int(mtu)), fmt.Sprintf("the links of the scratch cluster have "+
				"%d: large packets are rehearsed with that", link))
		}
	}
	if equality.Semantic.DeepEqual(conf, theirs) {
		return copied, nil
	}
	text, err := json.MarshalIndent(conf, "", "  ")
	if err != nil {
		return nil, err
	}
	data := map[string]any{}
	for key, value := range config.Data {
		data[key] = value
	}
	data[netConfKey] = string(text)
	copied.Objects = append(copied.Objects, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1",
		"kind": "ConfigMap", "metadata": map[string]any{"namespace": config.Namespace, "name": config.Name},
		"data": data}})
	copied.Say(name, "%s copied, with %s", areaConf, said)
	if c.Manifest == nil {
		for _, agent := range agentsOf(c.Scratch) {
			copied.Restart = append(copied.Restart, cni.DaemonSetRef(agent))
		}
	}
	return copied, nil
}

// networkFor sets the range of the copy: flannel's has to hold those of the nodes, which Kubernetes assigns.
func networkFor(c *cni.Copying, conf, theirs map[string]any, copied *cni.Copied) string {
	text, _ := conf["Network"].(string)
	own, err := netip.ParsePrefix(text)
	nodes := c.NodeRanges()
	outside := slices.ContainsFunc(nodes, func(node netip.Prefix) bool { return !cni.Within(own, node) })
	if err == nil && !outside && c.Clash(own) == "" && len(nodes) > 0 {
		return "its own range " + text
	}
	conf["Network"] = theirs["Network"]
	if within := c.Range(); c.Manifest != nil && within.IsValid() {
		conf["Network"] = within.String()
	}
	return fmt.Sprintf("the scratch cluster's range %v instead of %s, from which its nodes have their ranges",
		conf["Network"], text)
}

// Settings implements cni.Copier.
func (Driver) Settings(original, copied *cluster.Snapshot, _ map[string]string) (all []cni.Setting) {
	one, other := configIn(original), configIn(copied)
	if one == nil || other == nil {
		return nil
	}
	ours, theirs := fieldsOf(one), fieldsOf(other)
	all = append(all, cni.Setting{Area: cni.AreaRanges, Name: "Network", Original: cni.FieldText(ours["Network"]),
		Copy: cni.FieldText(theirs["Network"])})
	all = append(all, cni.CompareFields(areaConf, "", ours, theirs, "Network", "IPv6Network", "Backend")...)
	inOurs, _ := ours["Backend"].(map[string]any)
	inTheirs, _ := theirs["Backend"].(map[string]any)
	inOurs, inTheirs = maps.Clone(inOurs), maps.Clone(inTheirs)
	all = append(all, cni.CompareFields(areaConf, "Backend.", inOurs, inTheirs, "MTU")...)
	all = append(all, cni.Setting{Area: cni.AreaMTU, Name: "Backend.MTU", Original: cni.FieldText(inOurs["MTU"]),
		Copy: cni.FieldText(inTheirs["MTU"]), Links: true})
	return append(all, cni.Setting{Area: "cni-conf.json", Name: "cni-conf.json",
		Original: compact(one.Data["cni-conf.json"]), Copy: compact(other.Data["cni-conf.json"])})
}

// compact is JSON without spaces, with its fields sorted.
func compact(text string) string {
	var value any
	if json.Unmarshal([]byte(text), &value) != nil {
		return text
	}
	return cni.FieldText(value)
}
