package policy

import (
	"fmt"
	"net/netip"
)

// Verdict returns the verdict of a profile on one connection. Its ends are pods, given as namespace/name, or one of
// them an address outside of the cluster. It depends where a policy that is left out may decide.
func (m *Model) Verdict(side Side, from, to string, port Port) (Verdict, error) {
	a, source, err := m.end(from)
	if err != nil {
		return "", err
	}
	b, target, err := m.end(to)
	if err != nil {
		return "", err
	}
	if protocolAt(port.Protocol) < 0 || port.Number < firstPort || port.Number > lastPort {
		return "", fmt.Errorf("%s is not a port", port)
	}
	own := (a.class == nil || b.class == nil) && source >= 0 && target >= 0 &&
		m.pods[source].Spec.NodeName == m.pods[target].Spec.NodeName
	if source == target || own && a.class == nil && b.class == nil {
		return Allow, nil
	}
	if m.veiled(a) || m.veiled(b) {
		return Depends, nil
	}
	switch {
	case own && a.class != nil:
		return m.withOwnNode(side, Egress, a.class, b, nil).at(port.code()), nil
	case own:
		return m.withOwnNode(side, Ingress, b.class, a, nil).at(port.code()), nil
	}
	return m.between(side, a, b).at(port.code()), nil
}

// Selected reports whether any policy selects a pod, given as namespace/name, in a direction.
func (m *Model) Selected(side Side, direction Direction, name string) bool {
	i, err := m.find(name)
	if err != nil || m.byPod[i].class == nil {
		return false
	}
	return len(m.readings[side].selecting[direction][m.byPod[i].class.index]) > 0
}

// end is one end of a connection: a pod with its index, or an address outside of the cluster and -1.
func (m *Model) end(name string) (*endpoint, int, error) {
	if address, err := netip.ParseAddr(name); err == nil {
		return m.stranger(address), -1, nil
	}
	i, err := m.find(name)
	if err != nil {
		return nil, 0, err
	}
	return m.byPod[i], i, nil
}

func (m *Model) find(name string) (int, error) {
	if m.byName == nil {
		m.byName = make(map[string]int, len(m.pods))
		for i, pod := range m.pods {
			m.byName[pod.Namespace+"/"+pod.Name] = i
		}
	}
	i, ok := m.byName[name]
	if !ok {
		return 0, fmt.Errorf("there is no pod %s", name)
	}
	return i, nil
}

// between combines the verdicts of the policies of both ends.
func (m *Model) between(side Side, from, to *endpoint) verdict {
	v := verdict{allPorts, allPorts}
	if from.class != nil {
		v = v.and(m.flow(side, Egress, from.class,
			to).evaluate(m.readings[side].selecting[Egress][from.class.index], nil))
	}
	if to.class != nil {
		v = v.and(m.flow(side, Ingress, to.class,
			from).evaluate(m.readings[side].selecting[Ingress][to.class.index], nil))
	}
	return v
}
