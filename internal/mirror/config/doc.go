// Package config converts the configuration of a cluster into that of its mirror, or into one with another network. It
// reads the formats of kops, Cluster API and kubeadm and edits them in place. It gives a reason for each changed field,
// and asks questions about decisions that only a person can make.
package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/theseus-cni/theseus/internal/mirror/splice"
)

// Options are the requested changes.
type Options struct {
	Name    string            // the mirror's name; empty: the original's own configuration
	State   string            // where kops keeps the mirror (s3://bucket); empty: where the original is kept
	Network string            // the network to change to, as kops names it; empty: as it is
	Surge   bool              // rolling updates that double the nodes first
	Answers map[string]string // by the question's ID
}

// Edit is one field that was changed.
type Edit struct {
	File   string `json:"file"`
	Line   int    `json:"line"` // of the input
	Object string `json:"object"`
	Path   string `json:"path"`
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"` // empty: removed
	Why    string `json:"why"`
}

// Question is a decision for a person. Convert makes no configuration until all questions are answered.
type Question struct {
	ID      string   `json:"id"`
	File    string   `json:"file"`
	Line    int      `json:"line"`
	Text    string   `json:"text"`
	Answers []string `json:"answers"` // in capitals: what to fill in
}

// Name is a name of a cloud resource that the tool derives from the cluster's name.
type Name struct {
	What string `json:"what"`
	Old  string `json:"old"`
	New  string `json:"new"`
}

// Result is the result of a conversion.
type Result struct {
	Text      []byte     `json:"-"`
	Changes   []Edit     `json:"changes"`
	Questions []Question `json:"questions,omitempty"`
	Notes     []string   `json:"notes,omitempty"`
	Names     []Name     `json:"names,omitempty"`
}

// Usage is an error in the options, not in the files.
type Usage struct {
	Err    error
	Advice string
}

func (u *Usage) Error() string { return u.Err.Error() }

func (u *Usage) Unwrap() error { return u.Err }

// Hint says what to try.
func (u *Usage) Hint() string { return u.Advice }

// Convert edits the files of one cluster according to the options. If questions are open, the result has no text.
func Convert(files []*splice.File, options Options) (*Result, error) {
	j := &job{Options: options, result: &Result{Changes: []Edit{}}, asked: map[string]bool{},
		done: map[*yaml.Node]bool{}}
	if err := j.collect(files); err != nil {
		return nil, err
	}
	if err := j.convert(); err != nil {
		return nil, err
	}
	if len(j.result.Questions) == 0 {
		for _, id := range slices.Sorted(maps.Keys(options.Answers)) {
			if !j.asked[id] {
				return nil, &Usage{fmt.Errorf("%s was not asked", id), "leave the answer out, or correct its name"}
			}
		}
	}
	slices.SortStableFunc(j.result.Changes, func(a, b Edit) int {
		return cmp.Or(cmp.Compare(a.File, b.File), a.Line-b.Line)
	})
	for i, file := range files {
		text, err := file.Bytes()
		if err != nil {
			return nil, err
		}
		if i > 0 && len(text) > 0 && !strings.HasPrefix(string(text), "---") {
			text = append([]byte("---\n"), text...)
		}
		if n := len(j.result.Text); n > 0 && j.result.Text[n-1] != '\n' {
			j.result.Text = append(j.result.Text, '\n')
		}
		j.result.Text = append(j.result.Text, text...)
	}
	if len(j.result.Questions) > 0 {
		j.result.Text = nil
	}
	return j.result, nil
}

// job is one conversion.
type job struct {
	Options
	result  *Result
	objects []*object
	asked   map[string]bool
	done    map[*yaml.Node]bool // values that were decided about, so that the name is not looked for in them
}

// object is one object of a file.
type object struct {
	*yaml.Node
	file       *splice.File
	list       *yaml.Node // the List that it is an item of
	kind, name string
	group      string
	version    string
}

func (o *object) String() string { return o.kind + " " + o.name }

// short is how questions name a field: those of the cluster by their path alone, those of kops' groups by group and
// path.
func (o *object) short(path string) string {
	path = strings.TrimPrefix(path, "spec.")
	switch {
	case o.kind == "Cluster" || o.kind == "ClusterConfiguration":
		return path
	case o.group == kopsGroup:
		return o.name + ":" + path
	}
	return strings.TrimSuffix(o.kind+"/"+o.name, "/") + ":" + path
}

func (j *job) collect(files []*splice.File) error {
	for _, file := range files {
		for _, root := range file.Roots() {
			items, list := []*yaml.Node{root}, (*yaml.Node)(nil)
			if kind := splice.Text(root, "kind"); kind == "List" ||
				strings.HasSuffix(kind, "List") && splice.Get(root, "items") != nil {
				list = splice.Get(root, "items")
				items = slices.Clone(splice.Items(root, "items"))
			}
			for _, item := range items {
				o := &object{Node: item, file: file, list: list, kind: splice.Text(item, "kind"),
					name: splice.Text(item, "metadata", "name")}
				o.group, o.version, _ = strings.Cut(splice.Text(item, "apiVersion"), "/")
				if o.kind == "" || o.group == "" {
					return &splice.Error{File: file.Name, Line: item.Line,
						Err:    fmt.Errorf("no kind or apiVersion: this is no object"),
						Advice: "give what kops get -o yaml, kubectl get -o yaml or kubeadm print"}
				}
				j.objects = append(j.objects, o)
			}
		}
	}
	return nil
}

func (j *job) convert() error {
	for _, o := range j.objects {
		switch {
		case o.kind == "Cluster" && (o.group == kopsGroup || o.group == "kops"):
			return j.kops(o)
		case o.kind == "Cluster" && o.group == capiGroup:
			return j.capi(o)
		case o.kind == "ClusterConfiguration" && o.group == kubeadmGroup:
			return j.kubeadm(o)
		}
	}
	return &Usage{fmt.Errorf("no Cluster of kops or Cluster API, and no ClusterConfiguration of kubeadm"),
		"give the output of kops get --name NAME -o yaml, of kubectl get " +
			"cluster,kubeadmcontrolplane,machinedeployment,... -o yaml, or of kubeadm"}
}

// only fails where there is a second object of a kind of which one cluster has one.
func (j *job) only(one *object) error {
	for _, o := range j.objects {
		if o != one && o.kind == one.kind && o.group == one.group {
			return &splice.Error{File: o.file.Name, Line: o.Line,
				Err: fmt.Errorf("a second %s", strings.TrimSpace(o.String())), Advice: "give one cluster at a time"}
		}
	}
	return nil
}

func (j *job) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(j.result.Notes, text) {
		j.result.Notes = append(j.result.Notes, text)
	}
}

func (j *job) change(o *object, node *yaml.Node, path, from, to, why string) {
	j.result.Changes = append(j.result.Changes,
		Edit{o.file.Name, max(node.Line, o.Line), o.String(), path, from, to, why})
}

// ask returns the answer of a person, and keeps the question where there is none yet.
func (j *job) ask(o *object, node *yaml.Node, id, text string, answers ...string) (string, bool) {
	if answer, ok := j.Answers[id]; ok && answer != "" {
		j.asked[id] = true
		return answer, true
	}
	if !j.asked[id] {
		j.asked[id] = true
		j.result.Questions = append(j.result.Questions,
			Question{id, o.file.Name, max(node.Line, o.Line), text, answers})
	}
	return "", false
}

// choose is ask with a closed set of answers.
func (j *job) choose(o *object, node *yaml.Node, id, text string, answers ...string) (string, bool, error) {
	answer, ok := j.ask(o, node, id, text, answers...)
	if ok && !slices.Contains(answers, answer) {
		return "", false, &Usage{fmt.Errorf("--answer %s=%s: not one of %s", id, answer, strings.Join(answers, ", ")),
			text}
	}
	return answer, ok, nil
}

// set changes a scalar.
func (j *job) set(o *object, node *yaml.Node, path, to, why string) {
	j.done[node] = true
	if from := node.Value; from != to {
		o.file.SetText(node, to)
		if isKey(path) {
			from, to = brief(node, path), "another"
		}
		j.change(o, node, path, from, to, why)
	}
}

// drop removes an entry of a mapping.
func (j *job) drop(o *object, parent *yaml.Node, key, path, why string) {
	value := splice.Get(parent, key)
	if value == nil {
		return
	}
	j.change(o, value, path, brief(value, path), "", why)
	o.file.Remove(parent, key)
}

// put gives an entry a value, which is YAML.
func (j *job) put(o *object, parent *yaml.Node, key, value, path, why string) {
	from, line := "", parent
	if old := splice.Get(parent, key); old != nil {
		if from, line = brief(old, path), old; from == value {
			return
		}
	}
	j.change(o, line, path, from, value, why)
	o.file.Set(parent, key, value)
}

// dropObject takes an object out of the files.
func (j *job) dropObject(o *object, why string) {
	j.change(o, o.Node, "", "the object", "", why)
	if o.list != nil {
		o.file.RemoveItem(o.list, o.Node)
	} else {
		o.file.RemoveDocument(o.Node)
	}
	j.objects = slices.DeleteFunc(j.objects, func(other *object) bool { return other == o })
}

// isKey says whether the value of a field must not be shown.
func isKey(path string) bool {
	name := strings.ToLower(path[strings.LastIndexByte(path, '.')+1:])
	return slices.Contains([]string{"secret", "token", "bootstraptokens", "tlsbootstraptoken", "certificatekey",
		"last-applied-configuration"}, name) ||
		strings.HasSuffix(name, "/last-applied-configuration")
}

// brief is the value of a field on one line, unless that is a key.
func brief(node *yaml.Node, path string) string {
	if isKey(path) {
		return "(not shown)"
	}
	if node.Kind == yaml.ScalarNode {
		return shorten(node.Value)
	}
	data, err := yaml.Marshal(node)
	if err != nil {
		return "..."
	}
	var parts []string
	for line := range strings.Lines(string(data)) {
		parts = append(parts, strings.TrimSpace(line))
	}
	return shorten(strings.Join(parts, ", "))
}

func shorten(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if letters := []rune(text); len(letters) > 100 {
		return string(letters[:97]) + "..."
	}
	return text
}

// outside decides about something that exists once, outside of the cluster: keep it, drop the field, or name another.
func (j *job) outside(o *object, parent *yaml.Node, key, path, what string) {
	node := splice.Get(parent, key)
	if node == nil || node.Kind != yaml.ScalarNode || node.Value == "" {
		return
	}
	j.done[node] = true
	answer, ok := j.ask(o, node, o.short(path), fmt.Sprintf("%s is %s: %s", path, brief(node, path), what),
		"keep", "drop", "VALUE")
	switch {
	case !ok || answer == "keep":
	case answer == "drop":
		j.drop(o, parent, key, path, "decided: "+o.short(path)+"=drop")
	default:
		j.set(o, node, path, answer, "decided: "+what)
	}
}

// outsideItems is outside for each item of a list of names.
func (j *job) outsideItems(o *object, parent *yaml.Node, key, path, what string, when func(string) bool) {
	list := splice.Get(parent, key)
	kept := len(splice.Items(list))
	for i, item := range slices.Clone(splice.Items(list)) {
		if item.Kind != yaml.ScalarNode || !when(item.Value) {
			continue
		}
		j.done[item] = true
		at := fmt.Sprintf("%s.%d", path, i)
		answer, ok := j.ask(o, item, o.short(at), fmt.Sprintf("%s is %s: %s", at, item.Value, what),
			"keep", "drop", "VALUE")
		switch {
		case !ok || answer == "keep":
		case answer != "drop":
			j.set(o, item, at, answer, "decided: "+what)
		case kept == 1:
			j.drop(o, parent, key, path, "decided: "+o.short(at)+"=drop")
		default:
			kept--
			j.change(o, item, at, item.Value, "", "decided: "+o.short(at)+"=drop")
			o.file.RemoveItem(list, item)
		}
	}
}

func always(string) bool { return true }

// scalars calls for every scalar below a node, keys included, with its path.
func scalars(node *yaml.Node, path string, call func(node *yaml.Node, path string, key bool)) {
	switch node.Kind {
	case yaml.ScalarNode:
		if node.Line > 0 {
			call(node, path, false)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, value := node.Content[i], node.Content[i+1]
			below := key.Value
			if path != "" {
				below = path + "." + below
			}
			if key.Line > 0 {
				call(key, below, true)
			}
			scalars(value, below, call)
		}
	case yaml.SequenceNode:
		for i, item := range node.Content {
			scalars(item, fmt.Sprintf("%s.%d", path, i), call)
		}
	}
}
