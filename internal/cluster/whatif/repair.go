package whatif

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

// Repair is how something that goes by labels which nodes lose picks the same nodes before and after.
type Repair struct {
	// Rename has for each lost key the one to go by; it is empty when the nodes get the old label back.
	Rename map[string]string
	// Commands come before anything else, when nodes have to be labelled.
	Commands []string
}

// Lost are those of some keys that nodes lose.
func (r *Result) Lost(keys []string) []string {
	var lost []string
	for _, key := range keys {
		if r.removal(Label, key) != nil && !slices.Contains(lost, key) {
			lost = append(lost, key)
		}
	}
	return lost
}

// Because is the effect that takes a label, taint or annotation away, or gives it; nil when nothing does.
func (r *Result) Because(what string, keys []string) *Effect {
	for _, key := range keys {
		if e := r.removal(what, key); e != nil {
			return e
		}
	}
	for i := range r.Effects {
		if e := &r.Effects[i]; e.What == what && slices.Contains(keys, e.Key) {
			return e
		}
	}
	return nil
}

func (r *Result) removal(what, key string) *Effect {
	for i := range r.Effects {
		if e := &r.Effects[i]; e.What == what && e.Key == key && e.Removed {
			return e
		}
	}
	return nil
}

// String is the effect in words, such as "3 nodes lose the label a: kubeadm takes it".
func (e *Effect) String() string {
	verb := "get"
	if e.Removed {
		verb = "lose"
	}
	if len(e.Nodes) == 1 {
		return fmt.Sprintf("%s %ss the %s %s: %s", e.Nodes[0], verb, e.What, e.Key, e.Why)
	}
	return fmt.Sprintf("%d nodes %s the %s %s: %s", len(e.Nodes), verb, e.What, e.Key, e.Why)
}

// Picks says whether something picks a node when it goes by other keys, as rename has them.
type Picks func(rename map[string]string, n *corev1.Node) bool

// Repair finds another key for each of those that nodes lose: the one that replaces it, where that picks the
// same nodes before the change and after; else one of its own (own is its name), which the nodes are given
// now. Nil when neither does.
func (r *Result) Repair(keys []string, own string, picks Picks) *Repair {
	lost := r.Lost(keys)
	if len(lost) == 0 {
		return nil
	}
	if repair := r.putBack(lost); repair != nil {
		return repair
	}
	stable := &Repair{Rename: map[string]string{}}
	for _, key := range lost {
		if to := Replacement(key); to != "" {
			stable.Rename[key] = to
		}
	}
	if len(stable.Rename) == len(lost) && r.same(picks, stable.Rename, nil) {
		return stable
	}
	label := &Repair{Rename: map[string]string{}}
	extra := map[string]map[string]string{} // by node
	for i, key := range lost {
		to := own
		if i > 0 {
			to = fmt.Sprintf("%s-%d", own, i+1)
		}
		label.Rename[key] = to
		label.Commands = append(label.Commands, r.relabelling(key, to, extra)...)
	}
	if r.same(picks, label.Rename, extra) {
		return label
	}
	return nil
}

// putBack gives labels back to nodes that lost them because they are replaced: nothing that is put on before
// would stay.
func (r *Result) putBack(lost []string) *Repair {
	repair := &Repair{}
	for _, key := range lost {
		e := r.removal(Label, key)
		if e.Why != replaced {
			return nil
		}
		repair.Commands = append(repair.Commands, r.relabelling(key, key, map[string]map[string]string{})...)
	}
	return repair
}

// maxNamed is how many nodes a command names one by one, where a selector would do.
const maxNamed = 10

// relabelling are the commands that give a label the values of another one, node by node.
func (r *Result) relabelling(from, to string, extra map[string]map[string]string) []string {
	byValue := map[string][]string{}
	for i := range r.Before.Nodes {
		n := &r.Before.Nodes[i]
		value, ok := n.Labels[from]
		if !ok {
			continue
		}
		byValue[value] = append(byValue[value], n.Name)
		if extra[n.Name] == nil {
			extra[n.Name] = map[string]string{}
		}
		extra[n.Name][to] = value
	}
	var commands []string
	for _, value := range slices.Sorted(maps.Keys(byValue)) {
		nodes := shell.Words(byValue[value]...)
		if len(byValue[value]) > maxNamed && from != to {
			nodes = "-l " + shell.Quoted(from+"="+value)
		}
		commands = append(commands, fmt.Sprintf("kubectl label node %s %s", nodes, shell.Word(to+"="+value)))
	}
	return commands
}

// same reports whether, by other keys and with more labels, the nodes of today are picked before and after.
// It is nothing to nodes that have neither the old keys nor the new ones.
func (r *Result) same(picks Picks, rename map[string]string, extra map[string]map[string]string) bool {
	concerned := func(n *corev1.Node) bool {
		for from, to := range rename {
			if has(n.Labels, from) || has(n.Labels, to) {
				return true
			}
		}
		return false
	}
	for i := range r.Before.Nodes {
		if !concerned(&r.Before.Nodes[i]) && !concerned(&r.After.Nodes[i]) && extra[r.Before.Nodes[i].Name] == nil {
			continue
		}
		today := picks(nil, &r.Before.Nodes[i])
		for _, n := range []*corev1.Node{&r.Before.Nodes[i], &r.After.Nodes[i]} {
			if more := extra[n.Name]; more != nil {
				labelled := *n
				labelled.Labels = maps.Clone(n.Labels)
				maps.Copy(labelled.Labels, more)
				n = &labelled
			}
			if picks(rename, n) != today {
				return false
			}
		}
	}
	return true
}
