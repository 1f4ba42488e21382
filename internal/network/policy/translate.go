package policy

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
)

// Translation is Calico's policies of a snapshot as Cilium's.
type Translation struct {
	Objects []unstructured.Unstructured
	// Untranslated are the policies and rules that have no equal, or only one of a part of them.
	Untranslated []Remark
	// Left are policies of earlier translations that are in the cluster and that this one does not make.
	Left []Remark
	// Notes are what a reader must know of the policies that were translated.
	Notes []Remark
}

// Remark is about a policy, or about one rule of it.
type Remark struct {
	Policy finding.Subject // empty if it is about all of them
	Rule   string          // such as "ingress rule 2"; empty if it is about the policy
	Text   string
	Hint   string
}

// Translate translates Calico's policies. NetworkPolicies stay as they are, because Cilium enforces them as well.
//
// Calico evaluates tiers and policies in order, and the first rule that matches decides. Cilium has no order: what one
// policy denies is denied, else what one allows is allowed, else a pod that any policy isolates is closed. So each rule
// becomes the set of connections that it alone decides: a deny rule becomes one of Cilium's if no earlier rule allows
// a part of it; otherwise it is taken out of the allow rules after it.
func Translate(snapshot *cluster.Snapshot, source Profile) *Translation {
	t := &translator{out: &Translation{}, known: map[string]bool{defaultTier: true}, Model: &Model{
		namespaces: map[string]*namespace{}, gapped: map[Gap]bool{}, portNames: map[namedPort]bool{},
		accountOf: map[string]map[string]string{}}}
	for i := range snapshot.Namespaces {
		t.namespaces[snapshot.Namespaces[i].Name] = &namespace{snapshot.Namespaces[i].Name,
			snapshot.Namespaces[i].Labels}
	}
	for _, object := range snapshot.OtherOf("", "ServiceAccount") {
		t.accountOf[object.GetNamespace()+"/"+object.GetName()] = object.GetLabels()
		t.accountsKnown = true
	}
	for _, object := range snapshot.Calico("Tier") {
		t.known[object.GetName()] = true
	}
	t.look(snapshot, source)
	t.networks, t.hostEnds = t.calicoSets(snapshot), snapshot.Calico("HostEndpoint")
	r := &reading{}
	tiers := t.calicoTiers(r, snapshot)
	for _, kind := range []string{"GlobalNetworkPolicy", "NetworkPolicy"} {
		for _, object := range snapshot.Calico(kind) {
			if o := t.calicoOrigin(kind, object, tiers); o != nil {
				t.origins = append(t.origins, o)
			}
		}
	}
	for i := range snapshot.NetworkPolicies {
		if o := t.kubeOrigin(&snapshot.NetworkPolicies[i], tiers[defaultTier]); o != nil {
			t.origins = append(t.origins, o)
		}
	}
	slices.SortStableFunc(t.origins, func(a, b *origin) int { return comparePolicies(&a.policy, &b.policy) })
	specs := map[*origin][]map[string]any{}
	for _, d := range []Direction{Ingress, Egress} {
		t.direction = d
		s := sequence{translator: t, tiers: r.tiers, specs: specs}
		s.run()
	}
	for _, o := range t.origins {
		if !o.kube {
			t.emit(o, specs[o])
		}
	}
	t.clashes(snapshot)
	t.left(snapshot)
	t.needs()
	for _, g := range t.gaps {
		t.note(g.Policy, "", "%s", g.What)
	}
	for _, list := range [][]Remark{t.out.Untranslated, t.out.Notes} {
		slices.SortStableFunc(list, func(a, b Remark) int {
			return cmp.Or(compareSubjects(a.Policy, b.Policy), cmp.Compare(a.Rule, b.Rule))
		})
	}
	return t.out
}

// sequence is the rules of one direction in Calico's order.
type sequence struct {
	*translator
	tiers []tier
	items []*item
	specs map[*origin][]map[string]any
	// isolated are, by tier, the pods for which what no rule matches is denied.
	isolated [][]choice
	// passed are, by tier, what reaches the next tier although its pods are isolated.
	passed [][]box
	// allowed are, by origin, what Cilium's rules allow, denied what they deny.
	allowed, denied map[*origin][]box
}

func (s *sequence) run() {
	s.allowed, s.denied = map[*origin][]box{}, map[*origin][]box{}
	for _, o := range s.origins {
		s.items = append(s.items, o.items[s.direction]...)
	}
	s.isolate()
	s.passed = make([][]box, len(s.tiers))
	for i, it := range s.items {
		switch it.action {
		case deny:
			s.deny(i, it)
		case allow:
			s.allow(i, it)
		case pass:
			s.pass(i, it)
		}
	}
	// What passes all tiers is allowed by the profile of the namespace.
	for _, it := range s.items {
		if it.action != pass {
			continue
		}
		rest, ok := it.pieces, true
		if it.of.passesRest[s.direction] && s.all(it) {
			rest, ok = s.closedByKube(it)
		}
		for later := it.of.tier + 1; later < len(s.tiers) && ok; later++ {
			rest, ok = minusBoxes(rest, whole(s.isolated[later]))
		}
		if !ok {
			s.refuse(it.of.ref, it.name, tooMany)
			continue
		}
		s.allowed[it.of] = append(s.allowed[it.of], rest...)
	}
	for _, o := range s.origins {
		if !o.kube && o.governs[s.direction] {
			s.specs[o] = append(s.specs[o], s.specsOf(o)...)
		}
	}
}

// closedByKube is what a rule that passes everything passes of pods that Cilium closes all the same, because a
// NetworkPolicy selects them.
func (s *sequence) closedByKube(it *item) (found []box, ok bool) {
	for _, o := range s.origins {
		if !o.kube || !o.governs[s.direction] || o.tier != it.of.tier {
			continue
		}
		for _, b := range it.pieces {
			if pods, some := b.pods.and(o.subjects[0]); some {
				found = append(found, box{pods, b.far, b.door})
			}
		}
	}
	return found, len(found) <= mostParts
}

var tooMany = unequal("what is left of it, after the rules before it, is not a short list of Cilium's rules",
	"put rules that deny before those that allow, or name the peers that are allowed")

// isolate finds the pods that each tier closes.
func (s *sequence) isolate() {
	s.isolated = make([][]choice, len(s.tiers))
	passing := make([][]choice, len(s.tiers))
	for _, it := range s.items {
		if it.action == pass && s.all(it) {
			it.of.passesRest[s.direction] = true
			passing[it.of.tier] = append(passing[it.of.tier], it.of.subjects...)
		}
	}
	for _, o := range s.origins {
		if !o.governs[s.direction] || o.passesRest[s.direction] || s.tiers[o.tier].passes {
			continue
		}
		closed, ok := minusAll(o.subjects, passing[o.tier])
		if !ok {
			s.refuse(o.ref, "", tooMany)
			continue
		}
		s.isolated[o.tier] = append(s.isolated[o.tier], closed...)
	}
	for i, list := range s.isolated {
		slices.SortFunc(list, func(a, b choice) int { return cmp.Compare(a.String(), b.String()) })
		s.isolated[i] = slices.CompactFunc(list, func(a, b choice) bool { return a.String() == b.String() })
	}
}

// all reports whether a rule matches everything of the pods that its policy selects.
func (s *sequence) all(it *item) bool {
	rest, ok := minusBoxes(whole(it.of.subjects), it.boxes)
	return ok && len(rest) == 0
}

// deny decides how Cilium denies what a rule does.
func (s *sequence) deny(i int, it *item) {
	opened := s.tiers[it.of.tier].passes
	var later []*item
	for _, other := range s.items[i+1:] {
		if other.action == deny || !overlapping(other.boxes, it.boxes) {
			continue
		}
		later = append(later, other)
		opened = opened || other.action == pass && other.of.tier == it.of.tier && other.of.passesRest[s.direction]
	}
	var before []box
	for _, other := range s.items[:i] {
		if other.action == allow || other.action == pass && other.of.tier == it.of.tier {
			before = append(before, other.boxes...)
		}
	}
	if !opened && len(later) == 0 {
		it.moot = true
		return
	}
	if !overlapping(it.boxes, before) && s.sayable(it.boxes) {
		it.hard = true
		s.denied[it.of] = append(s.denied[it.of], it.boxes...)
		return
	}
	soft := !opened
	for _, other := range later {
		rest, ok := minusBoxes(other.boxes, it.boxes)
		soft = soft && ok && !other.of.kube && s.sayable(rest)
	}
	if soft {
		return
	}
	exact, ok := minusBoxes(it.boxes, before)
	if !ok || !s.sayable(exact) {
		s.refuse(it.of.ref, it.name, tooMany)
		return
	}
	it.hard = true
	s.denied[it.of] = append(s.denied[it.of], exact...)
}

// soft are the rules before one, in its tier, that deny without a deny rule of Cilium's, and those that pass.
func (s *sequence) before(i int, passes bool) (found []box) {
	it := s.items[i]
	for _, other := range s.items[:i] {
		if other.of.tier == it.of.tier && (other.action == deny && !other.hard || passes && other.action == pass) {
			found = append(found, other.boxes...)
		}
	}
	return found
}

func (s *sequence) allow(i int, it *item) {
	pieces, ok := minusBoxes(it.boxes, s.before(i, true))
	if ok {
		pieces, ok = s.reaching(pieces, it.of.tier)
	}
	switch {
	case ok && it.of.kube:
		s.kube(it, pieces)
	case ok && s.sayable(pieces):
		s.allowed[it.of] = append(s.allowed[it.of], pieces...)
	case it.of.kube:
		s.refuse(it.of.ref, it.name, unequal("policies of Calico before it deny a part of what it allows, and "+
			"that part "+
			"is not a short list of Cilium's rules", "put the order into the NetworkPolicy itself"))
	default:
		s.refuse(it.of.ref, it.name, tooMany)
	}
}

// kube reports a NetworkPolicy whose rule reaches further under Cilium: it cannot be narrowed.
func (s *sequence) kube(it *item, pieces []box) {
	lost, ok := minusBoxes(it.boxes, pieces)
	if ok && len(lost) == 0 {
		return
	}
	s.refuse(it.of.ref, it.name, unequal("Calico denies a part of what it allows, in an earlier rule or tier, "+
		"and Cilium has no short rules for that part; Cilium allows all that this NetworkPolicy allows",
		"narrow the NetworkPolicy, or write it as a policy of Calico before the translation"))
}

func (s *sequence) pass(i int, it *item) {
	pieces, ok := minusBoxes(it.boxes, s.before(i, true))
	if ok {
		pieces, ok = s.reaching(pieces, it.of.tier)
	}
	if !ok {
		s.refuse(it.of.ref, it.name, tooMany)
		return
	}
	it.pieces = pieces
	s.passed[it.of.tier] = append(s.passed[it.of.tier], pieces...)
}

// reaching is what of these connections the tiers before one let through to it.
func (s *sequence) reaching(all []box, tier int) ([]box, bool) {
	for earlier := range tier {
		closed := whole(s.isolated[earlier])
		if !overlapping(all, closed) {
			continue
		}
		through, ok := minusBoxes(all, closed)
		if !ok {
			return nil, false
		}
		for _, b := range all {
			for _, p := range s.passed[earlier] {
				if !b.overlaps(p) {
					continue
				}
				part, ok := b.and(p)
				if !ok {
					return nil, false
				}
				through = append(through, part)
			}
		}
		if all = through; len(all) > mostParts {
			return nil, false
		}
	}
	return all, true
}

// sayable reports whether Cilium's rules can name these ports and protocols, in few rules.
func (s *sequence) sayable(all []box) bool {
	return len(all) <= mostParts && !slices.ContainsFunc(all, func(b box) bool {
		other := b.door.ports.contains(otherCode)
		return other && len(everything.subtract(b.door.ports)) > 0
	})
}

// specsOf are the specs of one policy for one direction.
func (s *sequence) specsOf(o *origin) (found []map[string]any) {
	closed := []choice(nil)
	if !o.passesRest[s.direction] && !s.tiers[o.tier].passes {
		closed = o.subjects
		for _, other := range s.origins {
			if other.tier == o.tier && other.governs[s.direction] && other.passesRest[s.direction] {
				closed, _ = minusAll(closed, other.subjects)
			}
		}
	}
	isolates := slices.EqualFunc(closed, o.subjects, func(a, b choice) bool { return a.String() == b.String() })
	var order []string
	subject := map[string]choice{}
	boxes := map[string]*[2][]box{}
	at := func(pods choice) *[2][]box {
		key := pods.String()
		if boxes[key] == nil {
			order, subject[key], boxes[key] = append(order, key), pods, &[2][]box{}
		}
		return boxes[key]
	}
	for _, pods := range o.subjects {
		at(pods)
	}
	for i, list := range [][]box{s.allowed[o], s.denied[o]} {
		for _, b := range list {
			list := at(b.pods)
			list[i] = append(list[i], b)
		}
	}
	key := s.direction.String()
	for _, name := range order {
		lists := boxes[name]
		rules := ruleWriter{direction: s.direction, note: func(text string) { s.note(o.ref, "", "%s", text) }}
		allowed := rules.rules(lists[0], allow)
		denied := rules.rules(lists[1], deny)
		own := slices.ContainsFunc(o.subjects, func(p choice) bool { return p.String() == name })
		if len(allowed)+len(denied) == 0 && !(isolates && own) {
			continue
		}
		spec := map[string]any{"endpointSelector": labelSelector(subject[name], o.ref.Namespace)}
		if len(allowed) == 0 && isolates {
			allowed = []any{map[string]any{}} // selects no peer: all that it does is to isolate
		}
		if len(allowed) > 0 {
			spec[key] = allowed
		}
		if len(denied) > 0 {
			spec[key+"Deny"] = denied
		}
		if !isolates {
			spec["enableDefaultDeny"] = map[string]any{key: false}
		}
		found = append(found, spec)
	}
	if !isolates {
		for _, pods := range closed {
			found = append(found, map[string]any{"endpointSelector": labelSelector(pods, o.ref.Namespace),
				key: []any{map[string]any{}}})
		}
	}
	return found
}

// emit makes the object of a policy from its specs.
func (t *translator) emit(o *origin, specs []map[string]any) {
	if len(specs) == 0 {
		t.note(o.ref, "", "it decides nothing that Cilium has to be told, and has no policy of its own")
		return
	}
	kind := "CiliumNetworkPolicy"
	if o.ref.Namespace == "" {
		kind = "CiliumClusterwideNetworkPolicy"
	}
	object := map[string]any{"apiVersion": ciliumGroup + "/v2", "kind": kind,
		"metadata": map[string]any{"name": o.ref.Name, "annotations": map[string]any{
			translatedFrom: fmt.Sprintf("%s %s", o.ref.Kind, o.ref.Name)}}}
	if o.ref.Namespace != "" {
		object["metadata"].(map[string]any)["namespace"] = o.ref.Namespace
	}
	specs = merge(specs)
	if len(specs) == 1 {
		object["spec"] = specs[0]
	} else {
		var list []any
		for _, spec := range specs {
			list = append(list, spec)
		}
		object["specs"] = list
	}
	t.out.Objects = append(t.out.Objects, unstructured.Unstructured{Object: object})
}

// merge joins the specs of both directions that select the same pods.
func merge(specs []map[string]any) (merged []map[string]any) {
	for _, spec := range specs {
		key := fmt.Sprint(spec["endpointSelector"])
		i := slices.IndexFunc(merged, func(other map[string]any) bool {
			_, a := other["ingress"]
			_, b := other["ingressDeny"]
			_, c := spec["egress"]
			_, d := spec["egressDeny"]
			return (a || b) && (c || d) && other["egress"] == nil && other["egressDeny"] == nil &&
				fmt.Sprint(other["endpointSelector"]) == key
		})
		if i < 0 {
			merged = append(merged, spec)
			continue
		}
		for name, value := range spec {
			if more, ok := merged[i][name].(map[string]any); ok && name == "enableDefaultDeny" {
				for direction, set := range value.(map[string]any) {
					more[direction] = set
				}
				continue
			}
			merged[i][name] = value
		}
	}
	return merged
}

// needs notes what the policies need of Cilium.
func (t *translator) needs() {
	used := map[string]bool{}
	var look func(value any)
	look = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			for field, inner := range value {
				if field == "matchLabels" {
					continue
				}
				used[field] = true
				used["SCTP"] = used["SCTP"] || field == "protocol" && inner == "SCTP"
				look(inner)
			}
		case []any:
			for _, inner := range value {
				look(inner)
			}
		}
	}
	for _, o := range t.out.Objects {
		look(o.Object["spec"])
		look(o.Object["specs"])
	}
	for _, need := range []struct{ what, text string }{
		{"enableDefaultDeny", "enableDefaultDeny needs Cilium 1.16 or later: an older one drops the field, and then " +
			"the policies with it deny what they should leave open"},
		{"endPort", "endPort needs Cilium 1.16 or later: an older one drops the field, and then a range is its first " +
			"port only"},
		{"SCTP", "Cilium drops SCTP, whatever policies say, unless it is installed with sctp.enabled=true"},
	} {
		if used[need.what] {
			t.note(finding.Subject{}, "", "%s", need.text)
		}
	}
}
