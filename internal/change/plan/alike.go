package plan

import (
	"regexp"
	"strconv"
	"strings"
)

// alike removes from texts what differs when the same is done to other nodes, or to each of several: their names, how
// many they are, and the wave.
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
	for i := range p.Waves {
		for _, node := range p.Others(i) { // that are yet to come
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
	each  = regexp.MustCompile(`; the same( ([0-9]+) actions)? for \{node\}`)
)

// without is a text without these.
func (a alike) without(text string) string {
	return each.ReplaceAllString(batch.ReplaceAllString(many.ReplaceAllString(a.named(text), "{node}"), ""), "")
}

// lines are the lines of a step's text without these. A step that does for several nodes what another does for one has
// the same lines; but where it does something for one of its nodes alone, the line says that.
func (a alike) lines(text string) (all []string) {
	raw := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	all = make([]string, len(raw))
	several, covered := strings.Contains(text, "; the same "), 0 // lines that are said for several nodes
	for i := len(raw) - 1; i >= 0; i-- {
		all[i] = a.without(raw[i])
		if found := each.FindStringSubmatch(many.ReplaceAllString(a.named(raw[i]), "{node}")); found != nil {
			covered = 1
			if n, err := strconv.Atoi(found[2]); err == nil {
				covered = n
			}
		}
		if several && covered == 0 && a.one(raw[i]) {
			all[i] += " {one}"
		}
		covered = max(0, covered-1)
	}
	return all
}

// covers is how many nodes a line of a list is about: those that it names, and those for which it says the same.
func (a alike) covers(line string) (n int) {
	seen := map[string]bool{}
	for _, text := range word.FindAllString(line, -1) {
		if at := strings.Index(a.name(text), "{node}"); at >= 0 {
			seen[text[at:]] = true
		}
	}
	if found := count.FindString(line); found != "" {
		n, _ = strconv.Atoi(found[:strings.IndexByte(found, ' ')])
	}
	return n + len(seen)
}

// one says whether a line names one node.
func (a alike) one(line string) bool {
	if count.MatchString(line) {
		return false
	}
	found := map[string]bool{}
	for _, text := range word.FindAllString(line, -1) {
		if at := strings.Index(a.name(text), "{node}"); at >= 0 {
			found[text[at:]] = true
		}
	}
	return len(found) == 1
}

// named is a text with {node} in the place of names of nodes, and of how many they are.
func (a alike) named(text string) string {
	return word.ReplaceAllStringFunc(count.ReplaceAllString(text, "{node}"), a.name)
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
