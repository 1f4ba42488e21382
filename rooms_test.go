package theseus

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/theseus-cni/theseus/"

// rooms are the folders of internal/ in their order. What is pure imports from its own room and from rooms before it;
// what acts on the world imports everything pure, and hands of its own room and of rooms before it. Each room's doc.go
// says which of its packages others may import (Door), and which act on the world (Hands; "all" stands for every one)
// or run inside tests alone (Tests).
var rooms = []string{"safeio", "cluster", "proof", "step", "network", "flags", "preflight", "mirror",
	"change", "run", "node", "cli"}

// impure are the imports that a pure package does without.
var impure = []string{"os", "net", "net/http", "database/sql", "log", "log/slog",
	"math/rand", "math/rand/v2", "os/exec"}

// house is what the rooms say of themselves. The lists hold packages below internal/, such as "cluster/kube".
type house struct{ door, hands, tests map[string]bool }

// listed matches a list at the end of a room's doc.go.
var listed = regexp.MustCompile(`(?s)// (Door|Hands|Tests): (.*?)\.\n`)

// readHouse reads every room's doc.go, and holds that there are no other folders.
func readHouse(t *testing.T) house {
	h := house{map[string]bool{}, map[string]bool{}, map[string]bool{}}
	entries, err := os.ReadDir("internal")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !slices.Contains(rooms, entry.Name()) {
			t.Errorf("internal/%s is no room: a package belongs in one of %s", entry.Name(), strings.Join(rooms, ", "))
		}
	}
	for _, room := range rooms {
		text, err := os.ReadFile(filepath.Join("internal", room, "doc.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"// Belongs here: ", "// Does not belong here: ", "// Door: "} {
			if !strings.Contains(string(text), part) {
				t.Errorf("internal/%s/doc.go lacks %q", room, part)
			}
		}
		for _, list := range listed.FindAllStringSubmatch(string(text), -1) {
			into := map[string]map[string]bool{"Door": h.door, "Hands": h.hands, "Tests": h.tests}[list[1]]
			for _, name := range strings.Split(strings.ReplaceAll(list[2], "\n// ", " "), ", ") {
				pkg := room + "/" + name
				if name == room {
					pkg = room
				}
				if _, err := os.Stat(filepath.Join("internal", filepath.FromSlash(pkg))); err != nil && name != "all" {
					t.Errorf("internal/%s/doc.go lists %s, which does not exist", room, name)
				}
				into[pkg] = true
			}
		}
	}
	return h
}

// pure says whether a package reads and writes nothing but its arguments.
func (h house) pure(pkg string) bool {
	return !h.hands[pkg] && !h.hands[roomOf(pkg)+"/all"] && !h.tests[pkg]
}

// mayImport says what is wrong with an import of one package of internal/ by another; empty where nothing is.
func (h house) mayImport(pkg, other string) string {
	from, to := roomOf(pkg), roomOf(other)
	switch {
	case h.tests[pkg]:
		return ""
	case h.tests[other]:
		return "it runs inside tests alone"
	case from != to && !h.door[other]:
		return fmt.Sprintf("it is not among the doors of %s", to)
	case h.pure(pkg) && !h.pure(other):
		return "a pure package imports one that acts on the world"
	case h.pure(pkg) == h.pure(other) && slices.Index(rooms, from) < slices.Index(rooms, to):
		return fmt.Sprintf("room %s comes before room %s", from, to)
	}
	return ""
}

func roomOf(pkg string) string {
	room, _, _ := strings.Cut(pkg, "/")
	return room
}

// TestRooms holds the architecture: every package is in a room, rooms import each other's doors in one direction, and
// pure packages are pure.
func TestRooms(t *testing.T) {
	h := readHouse(t)
	used, across := map[string]bool{}, map[string]bool{}
	for _, file := range goFiles(t) {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		pkg, inside := strings.CutPrefix(filepath.ToSlash(filepath.Dir(file)), "internal/")
		pure := inside && h.pure(pkg) || strings.HasPrefix(pkg, "api/")
		for _, spec := range parsed.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			other, ours := strings.CutPrefix(path, module+"internal/")
			switch {
			case !ours && pure && (slices.Contains(impure, path) || strings.HasPrefix(path, "k8s.io/client-go")):
				t.Errorf("%s: a pure package imports %s", file, path)
			case ours && strings.HasPrefix(pkg, "api/"):
				t.Errorf("%s: the public types import %s", file, path)
			case ours && inside:
				if wrong := h.mayImport(pkg, other); wrong != "" {
					t.Errorf("%s imports %s: %s", file, other, wrong)
				}
			}
			if ours && roomOf(pkg) != roomOf(other) {
				used[other] = used[other] || strings.HasPrefix(pkg, "cmd/") || inside
				across[pkg+" "+other] = inside || across[pkg+" "+other]
			}
		}
		if pure {
			checkClock(t, file, parsed)
		}
	}
	for door := range h.door {
		if !used[door] {
			t.Errorf("%s is a door that no other room uses", door)
		}
	}
	t.Logf("%d imports across %d rooms, through %d doors", len(across), len(rooms), len(h.door))
}

// checkClock finds time.Now, time.Since and friends: pure code is given the time.
func checkClock(t *testing.T, file string, parsed *ast.File) {
	ast.Inspect(parsed, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if pkg, ok := selector.X.(*ast.Ident); ok && pkg.Name == "time" &&
			slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "NewTimer", "NewTicker", "Tick"},
				selector.Sel.Name) {
			t.Errorf("%s: a pure package calls time.%s", file, selector.Sel.Name)
		}
		return true
	})
}

// goFiles lists the module's own Go files, without tests: a test may use the real thing.
func goFiles(t *testing.T) []string {
	var files []string
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (path == "lab" || path == "bin" || path == ".git" || entry.Name() == "testdata") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") && filepath.Dir(path) != "." {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
