package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/change/compact"
)

// lines are runs in words. What is said of several nodes is said of the first.
func lines[T any](runs []compact.Run[T], say func(T) string) (all []string) {
	var open sentence
	for _, run := range runs {
		for _, entry := range run.First {
			text := say(entry)
			if len(run.Nodes) < 2 && open.takes(text) {
				all[len(all)-1] = open.text()
				continue
			}
			all, open = append(all, text), sentence{words: strings.Fields(text), at: -1}
		}
		if len(run.Nodes) < 2 {
			continue
		}
		open = sentence{}
		others := strings.Join(run.Nodes[1:], ", ")
		if len(run.Nodes) > 4 {
			others = fmt.Sprintf("%d more nodes", len(run.Nodes)-1)
		}
		same := "the same"
		if len(run.First) > 1 {
			same = fmt.Sprintf("the same %d actions", len(run.First))
		}
		all[len(all)-1] += "; " + same + " for " + others
		if run.Batches > 1 {
			all[len(all)-1] += fmt.Sprintf(", in %d batches", run.Batches)
		}
	}
	return all
}

// longest is how long a line grows by what it takes.
const longest = 180

// sentence is a line that takes the lines after it that differ from it in one word, "create Service a, b, c", or that
// do the same to other objects: "create Service a, b, Role c".
type sentence struct {
	words []string
	at    int      // the word in which they differ; -1 until there are two
	more  []string // that word in the lines that were taken
	kind  string   // of the last object, where it does the same to other objects
}

// takes says whether a line became part of the sentence.
func (s *sentence) takes(line string) bool {
	words := strings.Fields(line)
	if len(words) != len(s.words) || len(words) == 0 || len(s.text())+len(words[len(words)-1]) > longest {
		return false
	}
	if object(words) && object(s.words) && words[0] == s.words[0] {
		name := words[2]
		if words[1] != cmp.Or(s.kind, s.words[1]) {
			name = words[1] + " " + name
		}
		s.at, s.kind, s.more = 2, words[1], append(s.more, name)
		return true
	}
	differs := -1
	for i := range words {
		if words[i] == s.words[i] {
			continue
		}
		if differs >= 0 || s.at >= 0 && s.at != i {
			return false
		}
		differs = i
	}
	if differs <= 0 || !strings.ContainsAny(words[differs], "./") || strings.ContainsRune(words[differs], '=') {
		return false // only names of objects, and no selectors, which have commas of their own
	}
	s.at = differs
	s.more = append(s.more, words[differs])
	return true
}

// object says whether a line creates or deletes an object, which it names by kind and name, and says nothing else.
func object(words []string) bool {
	return len(words) == 3 && (words[0] == "create" || words[0] == "delete") &&
		words[1][0] >= 'A' && words[1][0] <= 'Z'
}

func (s *sentence) text() string {
	words := slices.Clone(s.words)
	if s.at >= 0 {
		words[s.at] = strings.Join(append([]string{words[s.at]}, s.more...), ", ")
	}
	return strings.Join(words, " ")
}
