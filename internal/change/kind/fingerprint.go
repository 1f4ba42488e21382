package kind

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
)

// Fingerprint says on what state of a cluster a plan rests: one short hash per part, as in
// "nodes:1a2b3c4d5e6f networks:... policies:... budgets:...". Pods are not in it, as they come and go;
// nothing that changes by itself is.
func Fingerprint(snapshot *cluster.Snapshot) string {
	var all []string
	for _, part := range parts() {
		all = append(all, part.name+":"+digest(part.lines(snapshot)))
	}
	return strings.Join(all, " ")
}

type part struct {
	name  string
	words string
	lines func(*cluster.Snapshot) []string
}

func parts() []part {
	return []part{
		{"nodes", "nodes were added, removed or given other addresses", nodeLines},
		{"networks", "a DaemonSet, a ConfigMap or an address pool of a network was changed", networkLines},
		{"policies", "NetworkPolicies were added, removed or changed", policyLines},
		{"budgets", "PodDisruptionBudgets were added, removed or changed", budgetLines},
	}
}

func digest(lines []string) string {
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:6])
}

func nodeLines(s *cluster.Snapshot) []string {
	var lines []string
	for i := range s.Nodes {
		node := &s.Nodes[i]
		address := ""
		for _, a := range node.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				address += " " + a.Address
			}
		}
		lines = append(lines, fmt.Sprint(node.Name, node.UID, node.Spec.PodCIDRs, node.Spec.PodCIDR, address))
	}
	return lines
}

// networkLines covers DaemonSets on the host's network, which networks are made of, the ConfigMaps that
// their pods read, and pools.
func networkLines(s *cluster.Snapshot) []string {
	var lines []string
	read := map[string]bool{}
	for i := range s.DaemonSets {
		set := &s.DaemonSets[i]
		spec := &set.Spec.Template.Spec
		if !spec.HostNetwork || set.Namespace == v1alpha1.Namespace {
			continue
		}
		lines = append(lines, line("DaemonSet", set.Namespace, set.Name, set.Spec))
		for _, volume := range spec.Volumes {
			if volume.ConfigMap != nil {
				read[set.Namespace+"/"+volume.ConfigMap.Name] = true
			}
		}
	}
	for i := range s.ConfigMaps {
		config := &s.ConfigMaps[i]
		if read[config.Namespace+"/"+config.Name] || slices.Contains(cni.ConfigMaps(), config.Name) {
			lines = append(lines, line("ConfigMap", config.Namespace, config.Name, config.Data))
		}
	}
	for i := range s.Other {
		object := &s.Other[i]
		if kind := object.GetKind(); slices.Contains(cni.ConfigKinds(), kind) {
			lines = append(lines, line(kind, object.GetNamespace(), object.GetName(), object.Object["spec"]))
		}
	}
	return lines
}

func policyLines(s *cluster.Snapshot) []string {
	var lines []string
	for i := range s.NetworkPolicies {
		policy := &s.NetworkPolicies[i]
		if policy.Namespace != v1alpha1.Namespace {
			lines = append(lines, line("NetworkPolicy", policy.Namespace, policy.Name, policy.Spec))
		}
	}
	return lines
}

func budgetLines(s *cluster.Snapshot) []string {
	var lines []string
	for i := range s.Budgets {
		budget := &s.Budgets[i]
		lines = append(lines, line("PodDisruptionBudget", budget.Namespace, budget.Name, budget.Spec))
	}
	return lines
}

func line(kind, namespace, name string, content any) string {
	data, err := json.Marshal(content)
	if err != nil {
		return kind + " cannot be encoded: " + err.Error()
	}
	return kind + " " + namespace + "/" + name + " " + string(data)
}

// Stale says in words what has changed since the plan was made; nothing when the plan still fits.
func Stale(p *Plan, snapshot *cluster.Snapshot) []string {
	if p.Cluster.UID != snapshot.UID {
		return []string{"the plan was made for another cluster"}
	}
	then, now := split(p.Cluster.Fingerprint), split(Fingerprint(snapshot))
	var changed []string
	for _, part := range parts() {
		if then[part.name] == now[part.name] {
			continue
		}
		words := part.words
		if part.name == "nodes" {
			words = nodeWords(p.Cluster.Nodes, snapshot, words)
		}
		changed = append(changed, words)
	}
	defined := snapshot.Definitions()
	for _, ref := range p.Target.Defines {
		if slices.Contains(defined, ref.Name) {
			changed = append(changed, ref.String()+" was created, which "+p.Target.Title()+
				" creates itself and a rollback deletes")
		}
	}
	if trace, _ := halfMigrated(snapshot); trace != "" {
		changed = append(changed, "a migration began: "+trace)
	}
	return changed
}

func split(fingerprint string) map[string]string {
	all := map[string]string{}
	for _, field := range strings.Fields(fingerprint) {
		name, hash, _ := strings.Cut(field, ":")
		all[name] = hash
	}
	return all
}

// nodeWords names the nodes that came or went.
func nodeWords(then []string, snapshot *cluster.Snapshot, otherwise string) string {
	var now, words []string
	for i := range snapshot.Nodes {
		now = append(now, snapshot.Nodes[i].Name)
	}
	for _, name := range now {
		if !slices.Contains(then, name) {
			words = append(words, "node "+name+" was added")
		}
	}
	for _, name := range then {
		if !slices.Contains(now, name) {
			words = append(words, "node "+name+" was removed")
		}
	}
	if len(words) == 0 {
		return otherwise
	}
	return Some(words)
}
