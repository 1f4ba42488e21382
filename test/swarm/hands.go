package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/node"
	"github.com/theseus-cni/theseus/internal/node/agent"
	"github.com/theseus-cni/theseus/internal/step"
)

var _ agent.Hands = (*machine)(nil)

// Do implements agent.Hands: the verb takes its time, and changes the model.
func (m *machine) Do(ctx context.Context, verb string, args json.RawMessage) (node.Answer, error) {
	if err := step.Allowed(verb, args); err != nil {
		return node.Answer{}, err
	}
	for _, fault := range m.strike(verb) {
		switch fault.kind {
		case "fail":
			return node.Answer{}, errors.New("a fault of the swarm: " + fault.text)
		case "slow":
			if err := sleep(ctx, fault.delay); err != nil {
				return node.Answer{}, err
			}
		case "lose":
			m.mu.Lock()
			m.share = fault.share
			m.mu.Unlock()
		case "restart":
			m.mu.Lock()
			m.restart()
			m.mu.Unlock()
			<-ctx.Done()
			return node.Answer{}, ctx.Err()
		case "vanish":
			m.vanish()
			<-ctx.Done()
			return node.Answer{}, ctx.Err()
		}
	}
	switch verb {
	case step.VerbAdopt:
		return with(args, func(a step.AdoptArgs) (node.Answer, error) { return m.adopt(ctx, a) })
	case step.VerbAdoptable:
		return with(args, m.adoptable)
	}
	if err := sleep(ctx, m.swarm.times.verb(verb, 0)); err != nil {
		return node.Answer{}, err
	}
	switch verb {
	case step.VerbFacts:
		return answer("facts of the model", m.facts())
	case step.VerbInventory:
		return with(args, func(wanted step.Residue) (node.Answer, error) { return m.inventory(wanted, false) })
	case step.VerbClean:
		return with(args, func(wanted step.Residue) (node.Answer, error) { return m.inventory(wanted, true) })
	case step.VerbActivate:
		return with(args, func(a step.ConfArgs) (node.Answer, error) { return m.serve(a.Active) })
	case step.VerbDeactivate:
		return with(args, func(step.ConfArgs) (node.Answer, error) { return m.serve(firstConf) })
	case step.VerbSettle:
		return answer("nothing is held any more", step.AdoptResult{Node: m.name})
	}
	return node.Answer{Changed: true, Message: "done by the model"}, nil
}

// Keep, Resume and BGP implement agent.Hands: nothing disturbs the model, its moves are not interrupted, and it runs no
// BGP daemon.
func (m *machine) Keep(context.Context) (string, error)                { return "", nil }
func (m *machine) Resume(context.Context) ([]step.AdoptOutcome, error) { return nil, nil }
func (m *machine) BGP(context.Context) *v1alpha1.BGP                   { return nil }

func with[T any](args json.RawMessage, do func(T) (node.Answer, error)) (node.Answer, error) {
	var decoded T
	if err := json.Unmarshal(args, &decoded); err != nil {
		return node.Answer{}, fmt.Errorf("read the arguments: %w", err)
	}
	return do(decoded)
}

func answer(message string, result any) (node.Answer, error) {
	encoded, err := json.Marshal(result)
	return node.Answer{Changed: true, Message: message, Result: encoded}, err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// serve lets another network serve new pods.
func (m *machine) serve(conf string) (node.Answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed := m.conf != conf
	m.conf = conf
	return node.Answer{Changed: changed, Message: conf + " serves new pods"}, nil
}

// on are the pods that a network carries and that are asked for. The lock is held.
func (m *machine) on(a step.AdoptArgs) []*pod {
	var all []*pod
	for _, p := range m.pods {
		name := p.namespace + "/" + p.name
		if p.address.IsValid() && slices.Contains(a.From.Conf, p.conf) && !slices.Contains(a.Skip, name) &&
			(len(a.Pods) == 0 || slices.Contains(a.Pods, name)) {
			all = append(all, p)
		}
	}
	return all
}

func (m *machine) adoptable(a step.AdoptArgs) (node.Answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	result := step.AdoptResult{Node: m.name}
	for _, p := range m.on(a) {
		result.Pods = append(result.Pods, p.outcome(step.AdoptReady))
	}
	return answer(fmt.Sprintf("%d pods can be moved", len(result.Pods)), result)
}

// adopt moves pods: it takes as long as the lab took for so many.
func (m *machine) adopt(ctx context.Context, a step.AdoptArgs) (node.Answer, error) {
	m.mu.Lock()
	count := len(m.on(a))
	m.mu.Unlock()
	begun := time.Now()
	if err := sleep(ctx, m.swarm.times.verb(step.VerbAdopt, count)); err != nil {
		return node.Answer{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	result := step.AdoptResult{Node: m.name}
	for _, p := range m.on(a) {
		p.conf = a.To.Conf[0]
		outcome := p.outcome(step.AdoptMoved)
		outcome.Marks = []step.AdoptMark{{Phase: "prepared", At: begun}, {Phase: "moved", At: time.Now()}}
		result.Pods = append(result.Pods, outcome)
	}
	return answer(fmt.Sprintf("%d pods are moved", len(result.Pods)), result)
}

func (p *pod) outcome(state step.AdoptState) step.AdoptOutcome {
	return step.AdoptOutcome{Namespace: p.namespace, Name: p.name, UID: string(p.uid), Sandbox: string(p.uid),
		Address: p.address.String(), State: state, Network: p.conf}
}

// inventory finds what networks left, and removes it when it is to be cleaned.
func (m *machine) inventory(wanted step.Residue, clean bool) (node.Answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found step.Residue
	for i := range m.found {
		has := &m.found[i]
		for _, list := range []struct {
			wanted    []string
			has, into *[]string
		}{
			{wanted.Links, &has.Links, &found.Links}, {wanted.Chains, &has.Chains, &found.Chains},
			{wanted.ConfFiles, &has.ConfFiles, &found.ConfFiles}, {wanted.Paths, &has.Paths, &found.Paths},
		} {
			*list.into = append(*list.into, step.Pick(list.wanted, *list.has)...)
			if clean {
				*list.has = slices.DeleteFunc(slices.Clone(*list.has), func(name string) bool {
					return step.Matches(list.wanted, name)
				})
			}
		}
	}
	if clean {
		return answer(fmt.Sprintf("%d removed, 0 left", found.Count()), step.Inventory{Node: m.name})
	}
	return answer(fmt.Sprintf("%d found", found.Count()), step.Inventory{Node: m.name, Found: found})
}

// facts are those of a node on flannel over VXLAN.
func (m *machine) facts() cluster.NodeFacts {
	return cluster.NodeFacts{Node: m.name, Kernel: kernel, Folders: new(cluster.DefaultFolders()),
		ConfFiles: []string{firstConf}, Links: []cluster.Link{
			{Name: "eth0", MTU: 1500, Addresses: []string{m.address + "/16"}},
			{Name: "flannel.1", Type: "vxlan", MTU: 1450, VNI: 1, Port: 8472},
			{Name: "cni0", Type: "bridge", MTU: 1450},
		}, Confs: []cluster.Conf{{File: firstConf, Network: "cbr0", Plugins: []string{"flannel", "portmap"}}},
		ForwardPolicy: "ACCEPT", Host: &cluster.Host{Clock: cluster.Clock{At: time.Now().UTC()},
			Modules: map[string]string{"vxlan": "loaded", "ip_set": "loaded", "xt_set": "loadable",
				"ip_tables": "loaded", "nf_tables": "loaded", "nf_conntrack": "loaded", "br_netfilter": "loaded"},
			IPTables: map[string]int{"nft": 200}, Sysctls: map[string]string{"net.ipv4.ip_forward": "1"}}}
}
