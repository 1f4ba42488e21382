package adoption

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/step"
)

// Pod is a pod as it is found on a node, before anything is touched.
type Pod struct {
	// Links are the names of its interfaces but for the loopback, Addresses those of Interface as CIDRs.
	Interface string
	Links     []string
	Addresses []string
	// Kind is the type of Interface, such as "veth".
	Kind string
	// Rules counts policy routing rules beyond the three that every namespace has.
	Rules int
	// Foreign are routes of the main table that do not lead through Interface.
	Foreign []string
	// Through is the host's interface that its packets to the pod leave by, Host the other end of Interface and
	// Master the bridge that this hangs on.
	Through, Host, Master string
	// Capabilities are what the runtime gave to the plugins.
	Capabilities map[string]any
}

// Refusals are the reasons why a pod cannot be moved; none means that it can.
func Refusals(pod Pod, from, to Side) []string {
	var why []string
	add := func(format string, values ...any) { why = append(why, fmt.Sprintf(format, values...)) }
	if others := slices.DeleteFunc(slices.Clone(pod.Links),
		func(name string) bool { return name == pod.Interface }); len(others) > 0 {
		add("it has several interfaces: %s", strings.Join(append([]string{pod.Interface}, others...), ", "))
	}
	if pod.Kind != "veth" {
		add("its interface is of type %s, not veth", pod.Kind)
	}
	if families := familiesOf(pod.Addresses); families != "one IPv4" {
		add("its interface has %s", families)
	}
	if pod.Rules > 0 {
		add("it has %d routing rules of its own", pod.Rules)
	}
	if len(pod.Foreign) > 0 {
		add("it has routes that do not use %s: %s", pod.Interface, strings.Join(pod.Foreign, ", "))
	}
	if from.Bridge != "" && pod.Master != from.Bridge {
		add("it is not attached to the bridge %s", from.Bridge)
	}
	if want := orElse(from.Bridge, pod.Host); pod.Through != want {
		add("the host reaches it through %s, not through %s", orElse(pod.Through, "nothing"), want)
	}
	return append(why, chained(pod, from, to)...)
}

func orElse(value, other string) string {
	if value == "" {
		return other
	}
	return value
}

// familiesOf describes addresses; link-local ones of IPv6, which every interface has, do not count.
func familiesOf(addresses []string) string {
	four, six := 0, 0
	for _, text := range addresses {
		prefix, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			return "an address that is none: " + text
		case prefix.Addr().Is4():
			four++
		case !prefix.Addr().IsLinkLocalUnicast():
			six++
		}
	}
	switch {
	case six > 0:
		return "IPv6 addresses"
	case four == 1:
		return "one IPv4"
	}
	return fmt.Sprintf("%d IPv4 addresses", four)
}

// plugin is one of a list's plugins.
type plugin struct {
	Type         string          `json:"type"`
	Capabilities map[string]bool `json:"capabilities"`
}

func plugins(list json.RawMessage) ([]plugin, error) {
	var conf struct {
		Plugins []plugin `json:"plugins"`
	}
	if err := json.Unmarshal(list, &conf); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	if len(conf.Plugins) == 0 {
		return nil, fmt.Errorf("it names no plugin")
	}
	return conf.Plugins, nil
}

// carried are plugins that may follow the first one: a capability requests their work for a pod, and the target's list
// must have it too.
var carried = []string{"portmap", "bandwidth"}

// chained finds what the source's chained plugins did that the target's would not.
func chained(pod Pod, from, to Side) []string {
	was, err := plugins(from.List)
	if err != nil {
		return []string{"the configuration with which it was created cannot be read: " + err.Error()}
	}
	will, err := plugins(to.List)
	if err != nil {
		return []string{"the target's configuration cannot be read: " + err.Error()}
	}
	var why []string
	for _, p := range was[1:] {
		if !slices.Contains(carried, p.Type) {
			why = append(why, "a chained plugin that Theseus does not know configured it: "+p.Type)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pod.Capabilities)) {
		used := slices.ContainsFunc(was, func(p plugin) bool { return p.Capabilities[name] })
		offered := slices.ContainsFunc(will, func(p plugin) bool { return p.Capabilities[name] })
		if used && !offered && !empty(pod.Capabilities[name]) {
			why = append(why, "the target's configuration has no plugin for its "+name)
		}
	}
	return why
}

// empty says whether a capability's argument asks for nothing.
func empty(value any) bool {
	text, err := json.Marshal(value)
	return err == nil && slices.Contains([]string{"null", "[]", "{}", `""`}, string(text))
}

// Wanted says whether AdoptArgs ask for a pod.
func Wanted(args step.AdoptArgs, namespace, name string) bool {
	full := namespace + "/" + name
	return !slices.Contains(args.Skip, full) && (len(args.Pods) == 0 || slices.Contains(args.Pods, full))
}
