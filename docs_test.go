package theseus

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
)

// maxColumns is the longest line of Markdown outside of tables, code and links.
const maxColumns = 110

// forbidden are phrases that read as translated. Each has better words: name who does what (docs/terms.md has the
// terms).
var forbidden = []string{
	"nobody", "somebody", "anew", "beside", "at hand", "what was there", "what is there", "it is not known",
	"is nobody's", "spared", "heed", "deed", "stands in", "stands at", "stands still",
	"whoever", "alone tells", "that is said", "is told at once", "goes on where", "of yours is", "but for",
	"those of who", "cannot come", "for good",
}

// otherPages have tests of their own: the reference of the commands is made from their help texts.
var otherPages = []string{"docs/reference/commands.md"}

// page is a Markdown file: its lines outside of code, by number.
type page struct {
	file  string
	lines []string // code blocks are empty lines
}

func pages(t *testing.T) []page {
	files := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"}
	if err := filepath.WalkDir("docs", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			files = append(files, filepath.ToSlash(path))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var all []page
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page{file, prose(string(text))})
	}
	return all
}

// prose is a page without its blocks of code, line by line. A block is fenced, or indented by four columns after an
// empty line.
func prose(text string) []string {
	lines := strings.Split(text, "\n")
	fenced, indented, empty := false, false, true
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		indented = strings.HasPrefix(line, "    ") && (indented || empty)
		empty = strings.TrimSpace(line) == "" || indented
		if fence || fenced || indented {
			lines[i] = ""
		}
		fenced = fenced != fence
	}
	return lines
}

var (
	span       = regexp.MustCompile("`[^`]*`")
	inlineLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	linkTarget = regexp.MustCompile(`^\[[^\]]+\]: (\S+)$`)
	notInSlug  = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
)

// anchors are the links to a page's headings, as GitHub makes them.
func anchors(p page) map[string]bool {
	found := map[string]bool{}
	for _, line := range p.lines {
		if title := strings.TrimLeft(line, "#"); title != line {
			title = inlineLink.ReplaceAllString(strings.ReplaceAll(strings.TrimSpace(title), "`", ""), "]")
			found[strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(title), ""), " ", "-")] = true
		}
	}
	return found
}

// TestLinks follows every link between pages, and to places in them.
func TestLinks(t *testing.T) {
	all := pages(t)
	for _, p := range all {
		for number, line := range p.lines {
			targets := linkTarget.FindAllStringSubmatch(line, -1)
			targets = append(targets, inlineLink.FindAllStringSubmatch(span.ReplaceAllString(line, "``"), -1)...)
			for _, target := range targets {
				if wrong := follow(all, p, target[1]); wrong != "" {
					t.Errorf("%s:%d: %s: %s", p.file, number+1, target[1], wrong)
				}
			}
		}
	}
}

// follow says what is wrong with a link; empty where nothing is. Links to other sites are not followed.
func follow(all []page, from page, target string) string {
	if strings.Contains(target, "://") {
		return ""
	}
	path, anchor, _ := strings.Cut(target, "#")
	file := from.file
	if path != "" {
		file = filepath.ToSlash(filepath.Join(filepath.Dir(from.file), path))
	}
	if _, err := os.Stat(file); err != nil {
		return "there is no such file"
	}
	i := slices.IndexFunc(all, func(p page) bool { return p.file == file })
	if anchor != "" && (i < 0 || !anchors(all[i])[anchor]) {
		return "there is no such heading"
	}
	return ""
}

func other(file string) bool {
	return slices.ContainsFunc(otherPages, func(start string) bool { return strings.HasPrefix(file, start) })
}

// TestColumns holds the width of lines.
func TestColumns(t *testing.T) {
	for _, p := range pages(t) {
		for number, line := range p.lines {
			shown := inlineLink.ReplaceAllString(span.ReplaceAllString(line, "``"), "]")
			if !other(p.file) && !strings.HasPrefix(strings.TrimSpace(line), "|") && !linkTarget.MatchString(line) &&
				utf8.RuneCountInString(shown) > maxColumns {
				t.Errorf("%s:%d: %d columns", p.file, number+1, utf8.RuneCountInString(shown))
			}
		}
	}
}

// TestPlainWords finds phrases that no page has.
func TestPlainWords(t *testing.T) {
	words := regexp.MustCompile(`(?i)\b(` + strings.Join(forbidden, "|") + `)\b`)
	for _, p := range pages(t) {
		for number, line := range p.lines {
			if other(p.file) {
				continue
			}
			for _, found := range words.FindAllString(span.ReplaceAllString(line, "``"), -1) {
				t.Errorf("%s:%d: %q: %s", p.file, number+1, found, strings.TrimSpace(line))
			}
		}
	}
}

// TestPlainRunbooks finds phrases that no runbook has.
func TestPlainRunbooks(t *testing.T) {
	words := regexp.MustCompile(`(?i)\b(` + strings.Join(forbidden, "|") + `)\b`)
	files, err := filepath.Glob("internal/change/plan/testdata/*runbook.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range words.FindAllString(string(text), -1) {
			t.Errorf("%s: %q", file, found)
		}
	}
}

// sentences are the sentences of a page with more than six words, outside of tables, headings and code.
func sentences(p page) []string {
	var text strings.Builder
	for _, line := range p.lines {
		if line != "" && !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "#") {
			text.WriteString(inlineLink.ReplaceAllString(line, "]") + " ")
		}
	}
	var long []string
	for _, one := range sentenceEnd.Split(text.String(), -1) {
		if words := strings.Fields(one); len(words) > 6 {
			long = append(long, strings.Join(words, " "))
		}
	}
	return long
}

var sentenceEnd = regexp.MustCompile(`[.:?!] `)

// TestSaidOnce: no page repeats a sentence of README.
func TestSaidOnce(t *testing.T) {
	all := pages(t)
	for _, p := range all[1:] {
		said := sentences(p)
		for _, one := range sentences(all[0]) {
			if slices.Contains(said, one) {
				t.Errorf("%s repeats README: %s", p.file, one)
			}
		}
	}
}

// TestConditionsPage: the page of conditions has every condition and every reason that the controller writes.
func TestConditionsPage(t *testing.T) {
	var source []byte
	for _, file := range []string{"api/v1alpha1/migration.go", "api/v1alpha1/change.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source = append(source, text...)
	}
	text, err := os.ReadFile("docs/reference/conditions.md")
	if err != nil {
		t.Fatal(err)
	}
	constants := regexp.MustCompile(`(?m)^\t(?:Condition|Reason)\w+\s*= "(\w+)"`).FindAllSubmatch(source, -1)
	if len(constants) < 20 {
		t.Fatalf("only %d conditions and reasons were found", len(constants))
	}
	for _, constant := range constants {
		if name := string(constant[1]); !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/reference/conditions.md lacks %s", name)
		}
	}
}

var (
	continued    = regexp.MustCompile(`\\\n\s*`)           // of a command in a shell
	concatenated = regexp.MustCompile(`"\s*\+\s*"`)        // of a text in Go
	kubectl      = regexp.MustCompile("kubectl [^`\n|;]*") // one command
	verbs        = regexp.MustCompile(`\b(get|describe|wait|delete|patch|edit|label|annotate)\b`)
	namespaced   = regexp.MustCompile(`(^| )(-n|-A|--namespace|--all-namespaces)\b`)
)

// TestKubectlNamespace: all kinds of Theseus but Change have a namespace, so a command of kubectl finds nothing without
// it. Every such command names it, or asks for all: in the documentation, the chart, and what the programs print.
func TestKubectlNamespace(t *testing.T) {
	kinds := map[string]bool{}
	for _, crd := range manifest.CRDs() {
		names, _, _ := unstructured.NestedMap(crd.Object, "spec", "names")
		kinds[names["plural"].(string)], kinds[names["singular"].(string)] = true, true
	}
	files, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"api", "charts", "cmd", "docs", "internal", "release"} {
		if err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if entry.IsDir() && entry.Name() == "testdata" {
				return filepath.SkipDir
			}
			if !entry.IsDir() && !strings.HasSuffix(path, "_test.go") {
				files = append(files, path)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	found := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := continued.ReplaceAllString(concatenated.ReplaceAllString(string(data), ""), " ")
		for _, command := range kubectl.FindAllString(text, -1) {
			if !verbs.MatchString(command) || !slices.ContainsFunc(strings.Fields(command), func(word string) bool {
				resource, _, _ := strings.Cut(strings.Trim(word, `"'.,:()`), "/")
				return slices.ContainsFunc(strings.Split(resource, ","), func(one string) bool {
					return kinds[strings.TrimSuffix(one, "."+v1alpha1.Group)]
				})
			}) {
				continue
			}
			if found++; !namespaced.MatchString(command) {
				t.Errorf("%s: without -n %s or -A: %s", file, v1alpha1.Namespace, command)
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d commands were found", found)
	}
}

// TestTutorialFollowsTheScript: the tutorial of the controller has the commands of the script that a test of the lab
// runs, in their order.
func TestTutorialFollowsTheScript(t *testing.T) {
	commands := func(file string, code func(line string) string) []string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for line := range strings.Lines(string(text)) {
			for _, found := range regexp.MustCompile(`\b(helm|kubectl|theseus) [a-z]+`).FindAllString(code(line), -1) {
				all = append(all, found)
			}
		}
		return slices.Compact(all)
	}
	messages := regexp.MustCompile(`echo ".*?"|^#.*`)
	script := commands("docs/examples/in-the-cluster.sh", func(line string) string {
		return messages.ReplaceAllString(line, "")
	})
	shown := commands("docs/tutorial-in-the-cluster.md", func(line string) string {
		if !strings.HasPrefix(line, "    ") {
			return ""
		}
		return line
	})
	if len(script) < 10 {
		t.Fatalf("the script has only the commands %q", script)
	}
	left := shown
	for _, command := range script {
		i := slices.Index(left, command)
		if i < 0 {
			t.Fatalf("the tutorial does not have %q where the script has it; the script has %q, the tutorial %q",
				command, script, shown)
		}
		left = left[i+1:]
	}
}

// texts are the strings of a Go file that people may read: those with several words.
func texts(t *testing.T, path string) (all []string) {
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range literals(src) {
		if len(strings.Fields(text)) > 2 {
			all = append(all, text)
		}
	}
	return all
}

// TestPlainTexts finds words that no help text, finding, error or hint has.
func TestPlainTexts(t *testing.T) {
	// The goldens of this file's texts are compared with what kubeadm says (make oracles).
	const judged = "internal/mirror/config/kubeadm.go"
	words := regexp.MustCompile(`(?i)\b(nobody|somebody|anew|beside|whoever|heed|deed|spared|mend|mends)\b`)
	for _, folder := range []string{"cmd", "internal"} {
		if err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() && entry.Name() == "testdata" {
				return fs.SkipDir
			}
			if entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				strings.HasSuffix(filepath.Dir(path), "test") {
				return nil
			}
			for _, text := range texts(t, path) {
				for _, found := range words.FindAllString(text, -1) {
					if path == judged && found == "beside" {
						continue
					}
					t.Errorf("%s: %q: %s", path, found, text)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}
