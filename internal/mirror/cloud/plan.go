package cloud

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/safeio/bounded"
)

// PlanKind is the kind of a file that holds a Plan.
const PlanKind = "CloudPlan"

// Verb is the operation of an action.
type Verb string

// The verbs. Each adds something, and can be reverted.
const (
	CreateIssuer  Verb = "create-issuer"
	CreateProfile Verb = "create-profile"
	AddToProfile  Verb = "add-role-to-profile"
	AttachPolicy  Verb = "attach-policy"
	PutPolicy     Verb = "put-inline-policy"
	Trust         Verb = "update-trust"
	NewVersion    Verb = "new-policy-version"
	AllowIn       Verb = "allow-ingress"
	AllowOut      Verb = "allow-egress"
)

// Action is one change.
type Action struct {
	Verb Verb `json:"verb"`
	// Subject is the changed resource: the name of a role or profile, the ARN of a policy, the URL of an issuer, the ID
	// of a group.
	Subject string `json:"subject"`
	// Name is the policy or the role that is added to it.
	Name string `json:"name,omitempty"`
	// Before and After are the policy; if the policy is not Before when the action runs, the action does not change it.
	Before Document `json:"before,omitempty"`
	After  Document `json:"after,omitempty"`
	Rule   *Rule    `json:"rule,omitempty"`
	Issuer *Issuer  `json:"issuer,omitempty"`
	Why    string   `json:"why"`
}

// String formats an action for people.
func (a Action) String() string {
	switch {
	case a.Rule != nil:
		return fmt.Sprintf("%s %s: %s", a.Verb, a.Subject, a.Rule)
	case a.Name != "":
		return fmt.Sprintf("%s %s: %s", a.Verb, a.Subject, a.Name)
	}
	return fmt.Sprintf("%s %s", a.Verb, a.Subject)
}

// Finding is a problem that no action can fix.
type Finding struct {
	Subject string `json:"subject"`
	Text    string `json:"text"`
	Hint    string `json:"hint"`
	// Blocks is true if the mirror lacks something until a person has fixed it.
	Blocks bool `json:"blocks"`
}

// Plan has the actions and findings for what the mirror lacks.
type Plan struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Original   string    `json:"original"`
	Mirror     string    `json:"mirror"`
	Actions    []Action  `json:"actions,omitempty"`
	Findings   []Finding `json:"findings,omitempty"`
	// Hash is the hash of the other fields: an edited plan is refused.
	Hash string `json:"hash"`
}

func (p *Plan) hash() string {
	plain := *p
	plain.Hash = ""
	data, err := yaml.Marshal(plain)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// WritePlan encodes a plan for a file.
func WritePlan(p *Plan) ([]byte, error) { return yaml.Marshal(p) }

// ReadPlan reads a plan, and refuses an edited one.
func ReadPlan(data []byte) (*Plan, error) {
	var p Plan
	if err := bounded.UnmarshalStrict(data, &p); err != nil {
		return nil, fmt.Errorf("this is not a plan for a cloud: %w", err)
	}
	if p.APIVersion != v1alpha1.APIVersion || p.Kind != PlanKind {
		return nil, fmt.Errorf("this is not a plan for a cloud: apiVersion %q, kind %q: want %q, %q",
			p.APIVersion, p.Kind, v1alpha1.APIVersion, PlanKind)
	}
	if p.Hash != p.hash() {
		return nil, errors.New("the plan was changed after it was made")
	}
	return &p, nil
}

// The limits of IAM that a plan must keep (IAM and STS quotas).
const (
	maxTrust    = 2048
	maxVersions = 5
)

type comparison struct {
	*Inventory
	names *names
	plan  *Plan
	// roles are the names of the original's roles, groups the ids of its groups; the values are those of the mirror.
	roles, groups map[string]string
	byID          map[string]*Group
}

// Compare makes the plan with what the mirror lacks. The names are the clusters' names in kops; pairs are names that
// cannot be derived from them.
func Compare(i *Inventory, original, mirror string, pairs []Pair) *Plan {
	c := &comparison{Inventory: i, names: newNames(original, mirror, pairs), roles: map[string]string{},
		groups: map[string]string{}, byID: map[string]*Group{},
		plan: &Plan{APIVersion: v1alpha1.APIVersion, Kind: PlanKind, Original: original, Mirror: mirror}}
	for _, text := range i.Missing {
		c.block("inventory", "grant the permission to read it, or compare it by hand", "was not read: %s", text)
	}
	c.findGroups()
	c.issuers()
	c.findRoles()
	c.ownRoles()
	c.profiles()
	c.foreignRoles()
	c.foreignPolicies()
	c.ownGroups()
	c.foreignGroups()
	if len(c.roles)+len(c.groups) == 0 {
		c.block(original, "check the name of the cluster; map other names with --name OLD=NEW",
			"no role and no security group has its name")
	}
	c.plan.Hash = c.plan.hash()
	return c.plan
}

func (c *comparison) block(subject, hint, format string, args ...any) {
	c.plan.Findings = append(c.plan.Findings, Finding{subject, fmt.Sprintf(format, args...), hint, true})
}

func (c *comparison) note(subject, hint, format string, args ...any) {
	c.plan.Findings = append(c.plan.Findings, Finding{subject, fmt.Sprintf(format, args...), hint, false})
}

func (c *comparison) act(a Action) {
	if !slices.ContainsFunc(c.plan.Actions, func(b Action) bool { return a.String() == b.String() }) {
		c.plan.Actions = append(c.plan.Actions, a)
	}
}

func (c *comparison) role(name string) *Role {
	if at := slices.IndexFunc(c.Roles, func(r Role) bool { return r.Name == name }); at >= 0 {
		return &c.Roles[at]
	}
	return nil
}

// findGroups pairs the security groups, by their names within a network or the tag Name.
func (c *comparison) findGroups() {
	byName := map[string][]*Group{}
	for n := range c.Groups {
		g := &c.Groups[n]
		c.byID[g.ID] = g
		byName[cmp.Or(g.Name, g.Tags["Name"])] = append(byName[cmp.Or(g.Name, g.Tags["Name"])], g)
	}
	for n := range c.Groups {
		g := &c.Groups[n]
		name := cmp.Or(g.Name, g.Tags["Name"])
		if !c.names.of(name) {
			continue
		}
		switch there := byName[c.names.mirror(name)]; len(there) {
		case 1:
			c.groups[g.ID] = there[0].ID
			c.names.add(g.ID, there[0].ID)
		case 0:
			c.block(g.ID, "create it (kops creates its own with the cluster), then compare again",
				"the mirror has no security group %s, which would match the original's %s", c.names.mirror(name), name)
		default:
			c.block(g.ID, "choose one with --name "+g.ID+"=ID", "the mirror has several security groups %s",
				c.names.mirror(name))
		}
	}
	for _, pair := range slices.Clone(c.names.pairs) {
		if c.byID[pair.Old] != nil && c.byID[pair.New] != nil {
			c.groups[pair.Old] = pair.New
		}
	}
}

// issuers pairs the OIDC providers, and makes the mirror's.
func (c *comparison) issuers() {
	for _, old := range c.Issuers {
		if !c.names.of(old.URL) {
			continue
		}
		url := c.names.mirror(old.URL)
		if !slices.ContainsFunc(c.Issuers, func(i Issuer) bool { return i.URL == url }) {
			made := Issuer{URL: url, Clients: old.Clients}
			if host(url) == host(old.URL) {
				made.Thumbprints = old.Thumbprints
			}
			c.act(Action{Verb: CreateIssuer, Subject: url, Issuer: &made,
				Why: "the original's tokens are trusted by " + old.URL})
		}
	}
}

func host(url string) string {
	name, _, _ := strings.Cut(url, "/")
	return name
}

// findRoles pairs the roles by name.
func (c *comparison) findRoles() {
	for _, r := range c.Roles {
		if c.names.of(r.Name) {
			c.roles[r.Name] = c.names.mirror(r.Name)
		} else if r.Tags["KubernetesCluster"] == c.plan.Original {
			c.block(r.Name, "map it with --name "+r.Name+"=NAME",
				"its tag says that it belongs to the original, and the name of the mirror's cannot be derived "+
					"from its name")
		}
	}
	for old, mirror := range c.roles {
		a, b := c.role(old), c.role(mirror)
		if b != nil && a.ID != "" && b.ID != "" {
			c.names.add(a.ID, b.ID)
		}
	}
}

// ownRoles gives the mirror's roles the policies that the original's have.
func (c *comparison) ownRoles() {
	for _, name := range slices.Sorted(maps.Keys(c.roles)) {
		old, mirror := c.role(name), c.role(c.roles[name])
		if mirror == nil {
			c.block(name, "create it (kops creates its own with the cluster), then compare again",
				"the mirror has no role %s", c.roles[name])
			continue
		}
		why := "role " + name + " has it"
		for _, arn := range old.Attached {
			there := c.names.mirror(arn)
			if there != arn && !slices.ContainsFunc(c.Policies, func(p Policy) bool { return p.ARN == there }) {
				c.block(name, "create that policy, then compare again",
					"the mirror has no policy %s, which would match the original's %s", there, arn)
			} else if !slices.Contains(mirror.Attached, there) {
				c.act(Action{Verb: AttachPolicy, Subject: mirror.Name, Name: there, Why: why})
			}
		}
		for _, policy := range slices.Sorted(maps.Keys(old.Inline)) {
			c.inline(old, mirror, policy, why)
		}
		if c.names.mirror(old.Boundary) != mirror.Boundary {
			c.block(mirror.Name, "give both the same boundary, or none",
				"its permissions boundary is %q, and the original's %q", mirror.Boundary, old.Boundary)
		}
		c.trust(mirror, lacking(c.names.document(old.Trust), mirror.Trust), "role "+name+" trusts so")
	}
}

func (c *comparison) inline(old, mirror *Role, policy, why string) {
	name, want := c.names.mirror(policy), c.names.document(old.Inline[policy])
	have, there := mirror.Inline[name]
	if !there {
		c.act(Action{Verb: PutPolicy, Subject: mirror.Name, Name: name, After: want, Why: why})
		return
	}
	if missing := lacking(want, have); len(missing) > 0 {
		c.act(Action{Verb: PutPolicy, Subject: mirror.Name, Name: name, Before: have, After: have.with(missing),
			Why: fmt.Sprintf("%s with %d statements that the mirror's lacks; also put your own statements into the "+
				"cluster's configuration, or kops removes them again", why, len(missing))})
	}
	if more := lacking(have, want); len(more) > 0 {
		c.note(mirror.Name, "check whether the mirror may have more permissions than the original",
			"its policy %s has %d statements that the original's lacks", name, len(more))
	}
}

// trust adds statements to the trust of a role.
func (c *comparison) trust(r *Role, missing []map[string]any, why string) {
	if len(missing) == 0 {
		return
	}
	after := r.Trust.with(missing)
	if len(after) > maxTrust {
		c.block(r.Name, "request a higher IAM quota for trust policies, or make a separate role for the mirror",
			"its trust policy would have %d characters, but IAM allows %d", len(after), maxTrust)
		return
	}
	c.act(Action{Verb: Trust, Subject: r.Name, Before: r.Trust, After: after, Why: why})
}

// profiles gives the mirror the instance profiles that the original has.
func (c *comparison) profiles() {
	for _, p := range c.Profiles {
		if !c.names.of(p.Name) {
			continue
		}
		name := c.names.mirror(p.Name)
		var have []string
		if at := slices.IndexFunc(c.Profiles, func(o Profile) bool { return o.Name == name }); at >= 0 {
			have = c.Profiles[at].Roles
		} else {
			c.act(Action{Verb: CreateProfile, Subject: name, Why: "instance profile " + p.Name})
		}
		for _, role := range p.Roles {
			switch want := c.names.mirror(role); {
			case slices.Contains(have, want):
			case len(have) > 0:
				c.block(name, "remove that role from it, or leave it unchanged",
					"the instance profile has role %s, and would have %s", have[0], want)
			default:
				c.act(Action{Verb: AddToProfile, Subject: name, Name: want,
					Why: "instance profile " + p.Name + " has " + role})
			}
		}
	}
}

// own says whether a role is one of the two clusters'.
func (c *comparison) own(name string) bool {
	if _, ok := c.roles[name]; ok {
		return true
	}
	for _, mirror := range c.roles {
		if mirror == name {
			return true
		}
	}
	return false
}

// foreignRoles gives the mirror the trust of roles that trust the original: by its issuer, or by its roles.
func (c *comparison) foreignRoles() {
	for n := range c.Roles {
		if r := &c.Roles[n]; !c.own(r.Name) {
			c.trust(r, c.missing(r.Trust), "it trusts the original")
			for _, policy := range slices.Sorted(maps.Keys(r.Inline)) {
				if have := r.Inline[policy]; len(c.missing(have)) > 0 {
					c.act(Action{Verb: PutPolicy, Subject: r.Name, Name: policy, Before: have,
						After: have.with(c.missing(have)), Why: "it names resources of the original"})
				}
			}
		}
	}
}

// missing are the statements of a policy that name something of the original, for the mirror, as far as the policy has
// them not.
func (c *comparison) missing(d Document) []map[string]any {
	var missing []map[string]any
	if d == "" {
		return nil
	}
	objects, normal := statements(c.names.document(d))
	_, before := statements(d)
	for n, one := range normal {
		if !slices.Contains(before, one) {
			missing = append(missing, objects[n])
		}
	}
	return missing
}

// foreignPolicies gives the mirror what policies of others allow the original.
func (c *comparison) foreignPolicies() {
	for _, p := range c.Policies {
		missing := c.missing(p.Document)
		if len(missing) == 0 || c.names.of(p.ARN) {
			continue
		}
		if p.Versions >= maxVersions {
			c.block(p.ARN, "delete an old version: aws iam list-policy-versions --policy-arn "+p.ARN,
				"it names resources of the original, and has %d versions already", p.Versions)
			continue
		}
		c.act(Action{Verb: NewVersion, Subject: p.ARN, Before: p.Document, After: p.Document.with(missing),
			Why: "it names resources of the original"})
	}
	for _, p := range c.ResourcePolicies {
		if missing := c.missing(p.Document); len(missing) > 0 {
			c.block(p.Resource, "add the statements for the mirror: "+string(p.Document.with(missing)),
				"its policy names resources of the original")
		}
	}
}

// ownGroups gives the mirror's groups the rules that the original's have.
func (c *comparison) ownGroups() {
	for _, id := range slices.Sorted(maps.Keys(c.groups)) {
		old, mirror := c.byID[id], c.byID[c.groups[id]]
		why := fmt.Sprintf("security group %s (%s) has it", old.ID, old.Name)
		for _, r := range old.In {
			c.allow(AllowIn, mirror, mirror.In, r, why)
		}
		for _, r := range old.Out {
			c.allow(AllowOut, mirror, mirror.Out, r, why)
		}
	}
}

// allow gives a group a rule with the mirror's peer. A rule with an address of the original's network must not be
// copied for the mirror.
func (c *comparison) allow(verb Verb, g *Group, have []Rule, r Rule, why string) {
	if to, ok := c.groups[r.Group]; ok {
		r.Group = to
	}
	if slices.ContainsFunc(have, r.Same) {
		return
	}
	if peer := c.byID[r.Group]; peer != nil && peer.VPC != g.VPC {
		c.note(g.ID, "peer the networks first, or allow the addresses instead",
			"%s of network %s would have to name %s of network %s", g.ID, g.VPC, peer.ID, peer.VPC)
	}
	c.act(Action{Verb: verb, Subject: g.ID, Rule: &r, Why: why})
}

// foreignGroups gives the mirror's groups the access to others that the original's have.
func (c *comparison) foreignGroups() {
	for n := range c.Groups {
		g := &c.Groups[n]
		if _, ok := c.groups[g.ID]; ok || slices.Contains(slices.Collect(maps.Values(c.groups)), g.ID) {
			continue
		}
		why := fmt.Sprintf("%s lets the original in", cmp.Or(g.Name, g.ID))
		for _, r := range g.In {
			if _, ok := c.groups[r.Group]; ok {
				c.allow(AllowIn, g, g.In, r, why)
			}
			c.byAddress(g, r)
		}
		for _, r := range g.Out {
			if _, ok := c.groups[r.Group]; ok {
				c.allow(AllowOut, g, g.Out, r, why)
			}
		}
	}
}

// byAddress finds rules of others for the addresses of the original's network, where the mirror has another one.
func (c *comparison) byAddress(g *Group, r Rule) {
	prefix, err := netip.ParsePrefix(r.CIDR)
	if err != nil || prefix.Bits() == 0 {
		return
	}
	inside := func(ids func(*Group) bool) (found bool) {
		for _, vpc := range c.VPCs {
			for _, cidr := range vpc.CIDRs {
				whole, err := netip.ParsePrefix(cidr)
				if err == nil && whole.Overlaps(prefix) &&
					slices.ContainsFunc(c.Groups, func(g Group) bool { return g.VPC == vpc.ID && ids(&g) }) {
					found = true
				}
			}
		}
		return found
	}
	if inside(func(g *Group) bool { _, ok := c.groups[g.ID]; return ok }) &&
		!inside(func(g *Group) bool { return slices.Contains(slices.Collect(maps.Values(c.groups)), g.ID) }) {
		c.block(g.ID, "allow the mirror's addresses too, if the mirror's pods or nodes need it",
			"%s allows %s by an address of the original's network", cmp.Or(g.Name, g.ID), r)
	}
}
