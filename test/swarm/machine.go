package main

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/theseus-cni/theseus/internal/step"
)

// maxNodes is bounded by the source's range, 10.0.0.0/9, of which each node has a /24.
const maxNodes = 5000

// The CNI configuration that serves on a node at the start.
const firstConf = "10-flannel.conflist"

// traces are what the agents of networks leave on a node, by their DaemonSets.
var traces = map[string]step.Residue{
	"kube-flannel-ds": {Links: []string{"flannel.1", "cni0"}, ConfFiles: []string{firstConf},
		Chains: []string{"FLANNEL-FWD", "FLANNEL-POSTRTG"}, Paths: []string{"/run/flannel"}},
	"calico-node": {Links: []string{"vxlan.calico"}, Chains: []string{"cali-FORWARD", "cali-INPUT"},
		Paths: []string{"/var/lib/calico"}},
}

// machine is the model of one node.
type machine struct {
	swarm   *swarm
	name    string
	address string
	source  netip.Prefix // of its pods' addresses
	target  netip.Prefix // and by the new network
	probers *probers
	ctx     context.Context // ends when the node vanishes
	vanish  context.CancelFunc

	mu      sync.Mutex
	conf    string // CNI configuration that serves
	pods    map[types.UID]*pod
	given   map[netip.Addr]bool // addresses that pods have
	found   []step.Residue
	faults  []fault
	share   float64            // of packets that are lost
	restart context.CancelFunc // of the agent
}

// pod is a pod on a node of the model.
type pod struct {
	namespace, name string
	uid             types.UID
	address         netip.Addr         // invalid on the host's network
	conf            string             // of the network that carries it
	stop            context.CancelFunc // ends what runs in it; nil before
	ending          bool
}

func newMachine(s *swarm, i int, target string) (*machine, error) {
	m := &machine{swarm: s, name: fmt.Sprintf("node-%d", i+1),
		address: netip.AddrFrom4([4]byte{172, 16, byte(i / 250), byte(i%250 + 1)}).String(), conf: firstConf,
		pods: map[types.UID]*pod{}, given: map[netip.Addr]bool{}}
	m.source = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)
	m.target = m.source
	if target != "" {
		whole, err := netip.ParsePrefix(target)
		if err != nil || whole.Bits() > 15 || !whole.Addr().Is4() {
			return nil, fmt.Errorf("--target-cidr %s is no IPv4 range of a /15 or more", target)
		}
		base := whole.Masked().Addr().As4()
		m.target = netip.PrefixFrom(netip.AddrFrom4([4]byte{base[0], base[1] + byte(i>>8), byte(i), 0}), 24)
	}
	m.probers = &probers{machine: m, of: map[string]*prober{}}
	m.ctx, m.vanish = context.WithCancel(context.Background())
	return m, nil
}

// give takes an address of the network that serves. The lock is held.
func (m *machine) give() netip.Addr {
	within := m.source
	if m.conf != firstConf {
		within = m.target
	}
	for address := within.Addr().Next(); within.Contains(address); address = address.Next() {
		if !m.given[address] {
			m.given[address] = true
			return address
		}
	}
	panic(m.name + " has no address left in " + within.String()) // a /24, and at most 110 pods
}

// losing is the share of packets from and to the node that are lost.
func (m *machine) losing() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		return 1
	}
	return m.share
}

// strike takes the faults that a verb sets off.
func (m *machine) strike(verb string) []fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	var struck, left []fault
	for _, f := range m.faults {
		if f.verb == verb {
			struck = append(struck, f)
		} else {
			left = append(left, f)
		}
	}
	m.faults = left
	return struck
}

// leave keeps what the agent of a network leaves, when its pod begins.
func (m *machine) leave(object *corev1.Pod) {
	for _, owner := range object.OwnerReferences {
		if residue, known := traces[owner.Name]; known && owner.Kind == "DaemonSet" {
			m.mu.Lock()
			m.found = append(m.found, residue)
			m.mu.Unlock()
		}
	}
}

// addresses are those of pods that run, by which probes are answered.
type addresses struct{ sync.Map }

func (a *addresses) has(address string) bool {
	_, has := a.Load(address)
	return has
}
