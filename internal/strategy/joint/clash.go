package joint

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// JoinArgs are the two networks as the agent's verb "join" takes them: traffic between them keeps its
// addresses, and its way back may differ from its way there, since each network routes only to its own.
func JoinArgs(source, target cni.Installation) step.JoinArgs {
	return step.JoinArgs{Old: slices.Clone(source.PodCIDRs), New: slices.Clone(target.PodCIDRs)}
}

// Clash is a reason why two networks cannot live on the same nodes.
type Clash struct {
	// ID is stable: "overlap", "vxlan", "links", "conf", "not-switched", "family".
	ID      string
	Message string
	Hint    string
}

// Clashes compares two networks by what they say of themselves. It knows no pair by name.
func Clashes(source, target cni.Installation) []Clash {
	var found []Clash
	for _, check := range []func(source, target cni.Installation) []Clash{
		overlaps, families, sameTunnel, sameLinks, unnamedConf, notSwitched,
	} {
		found = append(found, check(source, target)...)
	}
	return found
}

func overlaps(source, target cni.Installation) []Clash {
	for _, old := range source.PodCIDRs {
		for _, wanted := range target.PodCIDRs {
			a, errA := netip.ParsePrefix(old)
			b, errB := netip.ParsePrefix(wanted)
			if errA == nil && errB == nil && a.Overlaps(b) {
				return []Clash{{"overlap", fmt.Sprintf("the target's range %s overlaps the source's range %s", wanted, old),
					"choose a free range with --pod-cidr"}}
			}
		}
	}
	return nil
}

// families: rules between the networks are made for IPv4 only.
func families(source, _ cni.Installation) []Clash {
	for _, old := range source.PodCIDRs {
		if prefix, err := netip.ParsePrefix(old); err == nil && !prefix.Addr().Is4() {
			return []Clash{{"family", fmt.Sprintf("%s gives pods IPv6 addresses (%s), and two networks are joined for IPv4 only", source.CNI, old),
				"this cluster cannot be changed by this version"}}
		}
	}
	return nil
}

func sameTunnel(source, target cni.Installation) []Clash {
	a, b := source.Capabilities, target.Capabilities
	if a.Encapsulation != "vxlan" || b.Encapsulation != "vxlan" || a.VNI != b.VNI || a.Port != b.Port {
		return nil
	}
	return []Clash{{"vxlan", fmt.Sprintf("both networks would use VXLAN %d on UDP port %d", a.VNI, a.Port),
		"give the target another VNI in its manifest"}}
}

func sameLinks(source, target cni.Installation) []Clash {
	for _, a := range source.Capabilities.HostLinks {
		for _, b := range target.Capabilities.HostLinks {
			if matches(a, b) || matches(b, a) {
				return []Clash{{"links", fmt.Sprintf("both networks would own the interface %s", b), "this pair cannot run side by side"}}
			}
		}
	}
	return nil
}

// matches reports whether a pattern (a trailing * is a prefix) covers a name or another pattern.
func matches(pattern, other string) bool {
	prefix, open := strings.CutSuffix(pattern, "*")
	if !open {
		return pattern == other
	}
	return strings.HasPrefix(strings.TrimSuffix(other, "*"), prefix)
}

// unnamedConf: the runtime takes the first file by name, so both names must be known.
func unnamedConf(source, target cni.Installation) []Clash {
	if source.Capabilities.ConfName == "" || target.Capabilities.ConfName == "" {
		return []Clash{{"conf", "the name of a network's CNI configuration is not known", "give the network's own manifest"}}
	}
	return nil
}

func notSwitched(source, target cni.Installation) []Clash {
	for _, network := range []cni.Installation{source, target} {
		if !network.Capabilities.SwitchedPerNode {
			return []Clash{{"not-switched", network.CNI + " is not chosen per node by its CNI configuration", "the strategy recreate cannot be used"}}
		}
	}
	return nil
}
