package plan

import (
	"regexp"
	"strings"
)

// alike removes from texts what differs when the same is done to other nodes: their names, how many they are, and the
// wave.
type alike struct{ names map[string]string }

func newAlike(p *Plan) alike {
	a := alike{map[string]string{}}
	for _, node := range p.Cluster.Nodes {
		a.names[node] = "{node}"
	}
	for _, wave := range p.Waves {
		a.names[wave.Name] = "{wave}"
		for _, node := range wave.Nodes {
			a.names[node] = "{node}"
		}
	}
	return a
}

var (
	word  = regexp.MustCompile(`[A-Za-z0-9.-]+`)
	count = regexp.MustCompile(`[0-9]+ (more|other) nodes?`)
	many  = regexp.MustCompile(`\{node\}(, \{node\}| and \{node\})+`)
	batch = regexp.MustCompile(`, in [0-9]+ batches`)
)

// without is a text without these.
func (a alike) without(text string) string {
	text = count.ReplaceAllString(text, "{node}")
	text = word.ReplaceAllStringFunc(text, a.name)
	return batch.ReplaceAllString(many.ReplaceAllString(text, "{node}"), "")
}

// name replaces a name, also at the end of another one, as in theseus-probe-old-node-1.
func (a alike) name(text string) string {
	for at := 0; ; {
		if placeholder, known := a.names[text[at:]]; known {
			return text[:at] + placeholder
		}
		next := strings.IndexByte(text[at:], '-')
		if next < 0 {
			return text
		}
		at += next + 1
	}
}
