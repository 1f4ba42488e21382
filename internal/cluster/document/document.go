// Package document converts text into a snapshot: a Theseus snapshot, or plain Kubernetes YAML and JSON as
// kubectl prints it (single objects, several documents, Lists). It reads a stream, object by object, so a
// List may be much larger than the memory that the snapshot of it needs.
package document

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/safeio/bounded"
	"github.com/theseus-cni/theseus/internal/safeio/fault"
)

// The limits of the input, in bytes.
const (
	// MaxInput is the size of one file. 512 MiB are enough for about 100,000 pods.
	MaxInput = 512 << 20
	// MaxObject is the size of one object, or of one YAML document that is not a block-style List. Objects
	// in an API server are smaller than 2 MiB.
	MaxObject = 64 << 20
)

// Error is an error in an input, with its position.
type Error = fault.Error

// Builder collects objects into a snapshot. The zero value is not usable: call New.
type Builder struct {
	snapshot *cluster.Snapshot
	sinks    []sink
	// origins maps a resource to the files that contained it.
	origins map[string][]string
	notes   []string
	// ignored counts the objects that were left out, by a description.
	ignored map[string]int
	// lenient is true while documents that are not Kubernetes objects are skipped.
	lenient bool
	// block reads YAML; raw is the JSON that it produced last.
	block block
	raw   []byte
	// budget is the size that the aliases of the current input may still add.
	budget bounded.Budget
	// within is the nesting depth of Lists around the current object.
	within int
}

// New makes an empty builder. The version is Theseus' own version.
func New(version string) *Builder {
	b := &Builder{
		snapshot: &cluster.Snapshot{APIVersion: v1alpha1.APIVersion, Kind: cluster.Kind, Theseus: version},
		origins:  map[string][]string{},
		ignored:  map[string]int{},
	}
	b.sinks = b.makeSinks()
	return b
}

// Objects reads manifests: every object unchanged, in order.
func Objects(name string, input io.Reader) ([]unstructured.Unstructured, error) {
	var found []unstructured.Unstructured
	b := &Builder{snapshot: &cluster.Snapshot{}, origins: map[string][]string{}, ignored: map[string]int{}}
	b.sinks = []sink{{add: func(raw []byte, where place) error {
		var decoded unstructured.Unstructured
		if err := decoded.UnmarshalJSON(raw); err != nil {
			return where.fail("", plainJSON(err))
		}
		found = append(found, decoded)
		return nil
	}}}
	err := b.Add(name, input, false)
	return found, err
}

// Add reads one input to its end. Errors and sources contain the name. A lenient read skips documents that
// are not Kubernetes objects (a folder may contain some); otherwise they are errors. Errors are *Error.
func (b *Builder) Add(name string, input io.Reader, lenient bool) error {
	b.lenient, b.budget, b.within = lenient, bounded.Budget{}, 0
	lines := newLines(name, input)
	first, err := lines.peek()
	if err != nil {
		return err
	}
	switch first {
	case endOfInput:
		b.note("%s: empty", name)
		return nil
	case 0, 0x1f, 0xff, 0xfe:
		return &Error{File: name, Err: errors.New("not text"), Advice: "decompress it, or convert it to UTF-8"}
	case '{', '[':
		return b.addJSON(name, lines)
	default:
		return b.addYAML(name, lines)
	}
}

// Snapshot finishes the collection. The notes are for people: duplicates, and objects that were left out.
func (b *Builder) Snapshot() (*cluster.Snapshot, []string) {
	s := b.snapshot
	for _, one := range b.sinks {
		if one.end != nil {
			one.end()
		}
	}
	cluster.Trim(s)
	for _, resource := range b.resources() {
		b.setSource(resource)
	}
	for _, what := range slices.Sorted(maps.Keys(b.ignored)) {
		b.note("%d %s left out: a snapshot does not contain them", b.ignored[what], what)
	}
	return s, b.notes
}

// resources returns the resources that every snapshot has a source for, then the others that were found.
func (b *Builder) resources() []string {
	var names []string
	for _, s := range b.sinks {
		if s.resource != "" {
			names = append(names, s.resource)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.origins)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// setSource sets the source of a resource. It keeps the source from a snapshot file, unless more was read since.
func (b *Builder) setSource(resource string) {
	source := cluster.Source{Resource: resource, From: strings.Join(b.origins[resource], ", ")}
	if source.From == "" {
		source.Missing = "not in the input"
	}
	at := slices.IndexFunc(b.snapshot.Sources, func(s cluster.Source) bool { return s.Resource == resource })
	switch {
	case at < 0:
		b.snapshot.Sources = append(b.snapshot.Sources, source)
	case source.From != "":
		b.snapshot.Sources[at] = source
	}
}

// origin records that a resource was in a file; it truncates a long list of files.
func (b *Builder) origin(resource string, at place) {
	const most = 3
	file := at.file
	files := b.origins[resource]
	if at.silent || slices.Contains(files, file) || len(files) > most {
		return
	}
	if len(files) == most {
		file = "..."
	}
	b.origins[resource] = append(files, file)
}

func (b *Builder) note(format string, args ...any) {
	const most = 50
	if len(b.notes) < most {
		b.notes = append(b.notes, fmt.Sprintf(format, args...))
	} else if len(b.notes) == most {
		b.notes = append(b.notes, "more notes are not shown")
	}
}
