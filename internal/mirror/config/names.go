package config

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/theseus-cni/theseus/internal/mirror/kopsname"
)

func dashed(name string) string { return strings.ReplaceAll(name, ".", "-") }

// group is what of an instance group goes into names.
type group struct{ name, role string }

// derive lists what kops makes in the cloud for a cluster on AWS, by the names that it gives. The order is the
// same for every cluster with these groups, zones and service accounts.
func derive(cluster string, groups []group, subnets []string, accounts [][2]string) []Name {
	var all []Name
	add := func(what, name string) { all = append(all, Name{What: what, Old: name}) }
	roles := []string{"masters", "nodes"}
	for _, g := range groups {
		switch g.role {
		case "APIServer":
			roles = append(roles, "apiservers")
		case "Bastion":
			roles = append(roles, "bastions")
		}
	}
	for _, role := range slices.Compact(slices.Sorted(slices.Values(roles))) {
		add("IAM role and instance profile", kopsname.Truncate(role+"."+cluster, kopsname.MaxRole))
	}
	for _, account := range accounts {
		add("IAM role of a service account", kopsname.Truncate(account[1]+"."+
			strings.ReplaceAll(account[0], "*", "wildcard")+".sa."+cluster, kopsname.MaxRole))
	}
	for _, sg := range []string{"masters.", "nodes.", "bastion.", "api-elb.", "bastion-elb."} {
		add("security group", sg+cluster)
	}
	for _, g := range groups {
		switch g.role {
		case "Master", "ControlPlane":
			add("autoscaling group", g.name+".masters."+cluster)
		case "APIServer":
			add("autoscaling group", g.name+".apiservers."+cluster)
		default:
			add("autoscaling group", g.name+"."+cluster)
		}
	}
	add("load balancer", "api."+cluster)
	for _, prefix := range []string{"api", "bastion"} {
		add("load balancer", kopsname.Hashed(prefix+"-"+dashed(cluster), kopsname.MaxResource))
	}
	for _, prefix := range []string{"tcp", "tls", "kops-controller"} {
		add("target group", kopsname.Hashed(prefix+"-"+dashed(cluster), kopsname.MaxResource))
	}
	add("queue", kopsname.Truncate(dashed(cluster), kopsname.MaxQueue)+"-nth")
	add("network", cluster)
	for _, subnet := range subnets {
		add("subnet", subnet+"."+cluster)
	}
	return all
}

// identity finds the names of a cluster in texts, and puts the mirror's in their place.
type identity struct {
	pairs []pair // longest first
}

type pair struct {
	old, new string
	prefix   bool // may have more behind a dash or dot: names of buckets and queues, and words
}

func newIdentity(old, mirror string, derived []Name) *identity {
	id := &identity{pairs: []pair{{old: old, new: mirror}}}
	if d := dashed(old); d != old {
		id.pairs = append(id.pairs, pair{old: d, new: dashed(mirror), prefix: true})
	}
	for _, name := range derived {
		if !strings.Contains(name.Old, old) &&
			!slices.ContainsFunc(id.pairs, func(p pair) bool { return p.old == name.Old }) {
			id.pairs = append(id.pairs, pair{old: name.Old, new: name.New})
		}
	}
	slices.SortStableFunc(id.pairs, func(a, b pair) int { return len(b.old) - len(a.old) })
	return id
}

// rewrite puts the mirror's names in the place of the cluster's, by whole parts of names: blue.example.com is in
// api.blue.example.com, and neither in other-blue.example.com nor in blue.example.com.evil.io.
func (id *identity) rewrite(text string) string {
	var out strings.Builder
	for at := 0; at < len(text); {
		matched := false
		for _, p := range id.pairs {
			if strings.HasPrefix(text[at:], p.old) && startsName(text[:at]) &&
				endsName(text[at+len(p.old):], p.prefix) {
				out.WriteString(p.new)
				at += len(p.old)
				matched = true
				break
			}
		}
		if !matched {
			out.WriteByte(text[at])
			at++
		}
	}
	return out.String()
}

// word is the identity of a name that is a word: blue is in api.blue.example.com and blue-nodes, not in bluebird or in
// deep-blue.
func word(old, mirror string) *identity {
	return &identity{pairs: []pair{{old: old, new: mirror, prefix: true}}}
}

func (id *identity) in(text string) bool { return id.rewrite(text) != text }

func nameByte(b byte) bool {
	return b == '-' || b == '_' || '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
}

func startsName(before string) bool { return before == "" || !nameByte(before[len(before)-1]) }

func endsName(after string, prefix bool) bool {
	switch {
	case after == "" || prefix && (after[0] == '-' || after[0] == '.'):
		return true
	case after[0] == '.':
		return len(after) == 1 || !nameByte(after[1])
	}
	return !nameByte(after[0])
}

// mentions puts the mirror's names wherever else the cluster's are, and asks about the first part of the name. Without
// names to look for, as where the name is a word like any other, it asks about all.
func (j *job) mentions(name string, id *identity) {
	short, _, _ := strings.Cut(name, ".")
	mirrorShort, _, _ := strings.Cut(j.Name, ".")
	for _, o := range j.objects {
		scalars(o.Node, "", func(node *yaml.Node, path string, key bool) {
			if !j.done[node] && (!key || strings.ContainsAny(node.Value, ".-")) {
				j.mention(o, node, path, short, mirrorShort, id)
			}
		})
	}
}

func (j *job) mention(o *object, node *yaml.Node, path, short, mirrorShort string, id *identity) {
	if id != nil {
		j.rewrite(o, node, path, id, "it names the cluster")
	}
	// The first part of the name is a word of its own to people: only they know which `blue` is the cluster.
	words := word(short, mirrorShort)
	if path == "metadata.name" || short == mirrorShort || !words.in(node.Value) {
		return
	}
	text := fmt.Sprintf("%s says %s: is %s the cluster there? keep: no",
		path, shorten(theLine(node.Value, words.rewrite(node.Value))), short)
	if answer, ok := j.ask(o, node, o.short(path), text, "keep", mirrorShort, "VALUE"); ok && answer != "keep" {
		j.rewrite(o, node, path, word(short, answer), "decided: the cluster is meant")
	}
}

// rewrite puts the mirror's names into a scalar, and keeps the first line that changed.
func (j *job) rewrite(o *object, node *yaml.Node, path string, id *identity, why string) {
	from := node.Value
	if o.file.Rewrite(node, id.rewrite) {
		j.change(o, node, path, shorten(theLine(from, node.Value)), shorten(theLine(node.Value, from)), why)
	}
}

// theLine is the first line of a text that the other has not.
func theLine(text, other string) string {
	lines, others := strings.Split(text, "\n"), strings.Split(other, "\n")
	for i, line := range lines {
		if i >= len(others) || others[i] != line {
			return line
		}
	}
	return text
}
