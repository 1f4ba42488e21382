package policy

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Outside is a difference about connections with addresses outside of the cluster.
type Outside struct {
	// Pod is one of the pods, and Pods their number; First and Last are the addresses.
	Pod         *corev1.Pod
	Pods        int
	Direction   Direction
	First, Last netip.Addr
	Ports       Ports
	Change      Change
	Before      Verdict
	After       Verdict
}

// OutsideDifferences compares the profiles for all pods, all ports, and all addresses outside of the cluster: one
// address stands for each range that policies treat alike. Addresses of pods and nodes are left out.
func (m *Model) OutsideDifferences() (found []Outside) {
	ranges := m.outside()
	for _, direction := range []Direction{Ingress, Egress} {
		subjects, _ := m.subjects(direction)
		for _, s := range subjects {
			if len(s.policies[Before])+len(s.policies[After]) == 0 {
				continue
			}
			pods := 0
			for _, c := range s.classes {
				for _, e := range c.endpoints {
					pods += len(e.pods)
				}
			}
			for _, r := range ranges {
				e := m.stranger(r.first)
				var v [2]verdict
				for side := range v {
					v[side] = m.flow(Side(side), direction, s.classes[0], e).evaluate(s.policies[side], nil)
				}
				for _, change := range changes() {
					ports := change.ports(v[Before], v[After])
					if len(ports) == 0 {
						continue
					}
					pod := m.pods[s.classes[0].endpoints[0].pods[0]]
					port := likely(ports, pod)
					found = append(found, Outside{pod, pods, direction, r.first, r.last, Ports{ports}, change,
						v[Before].at(port), v[After].at(port)})
				}
			}
		}
	}
	return found
}

// stranger is an address outside of the cluster.
func (m *Model) stranger(address netip.Addr) *endpoint {
	at := spans{{m.division.at(address), m.division.at(address)}}
	return &endpoint{index: -1, outside: address, addresses: [2][2]spans{{at, at}, {at, at}}}
}

// outside are the ranges of addresses outside of the cluster that no policy divides. The first address is none of a pod
// or node; others in between may be.
func (m *Model) outside() (all addresses) {
	starts := slices.Clone(m.division.starts)
	for _, p := range m.beyond {
		starts = append(starts, p.Addr())
		if next := lastOf(p).Next(); next.IsValid() {
			starts = append(starts, next)
		}
	}
	inside := m.nodeAddresses
	for _, r := range m.readings {
		inside = inside.union(addressesOf(r.profile.Pods...))
	}
	for _, pod := range m.pods {
		own, host := addressesOfPod(&pod.Status)
		for _, known := range []addresses{own, host} {
			if inside.holds(known) != yes {
				inside = inside.union(known)
			}
		}
	}
	slices.SortFunc(starts, netip.Addr.Compare)
	starts = slices.Compact(starts)
	for i, first := range starts {
		last := everywhere[1].last
		if i+1 < len(starts) && starts[i+1].Is4() == first.Is4() {
			last = starts[i+1].Prev()
		} else if first.Is4() {
			last = everywhere[0].last
		}
		if rest := (addresses{{first, last}}).minus(inside); len(rest) > 0 {
			all = append(all, addressRange{rest[0].first, rest[len(rest)-1].last})
		}
	}
	return all
}
