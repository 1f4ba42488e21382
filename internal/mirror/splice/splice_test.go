package splice

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const sample = `# the cluster
kind: Cluster   # its kind
metadata:
  name: "blue.example.com"

spec:
  # where it is kept
  configBase: s3://state/blue.example.com
  folded: this goes on
    for blue.example.com lines
  hooks:
  - manifest: |
      ExecStart=/bin/x --name blue.example.com

      # a comment of the script
    name: x
  - name: y
  networking:
    weave:
      mtu: 8912
  subnets:
  - cidr: 172.20.32.0/19
    id: subnet-1   # shared
    name: a
  unknown: {x: 1}
---
kind: Other
`

func edited(t *testing.T, text string, change func(f *File, root *yaml.Node)) string {
	t.Helper()
	f, err := Parse("in.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	change(f, f.Roots()[0])
	out, err := f.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestEdits(t *testing.T) {
	green := func(text string) string { return strings.ReplaceAll(text, "blue", "green") }
	for _, test := range []struct {
		name     string
		change   func(f *File, root *yaml.Node)
		old, new string
	}{
		{"a quoted value", func(f *File, root *yaml.Node) {
			f.SetText(Get(root, "metadata", "name"), "green.example.com")
		},
			`name: "blue.example.com"`, `name: "green.example.com"`},
		{"a plain value that needs quotes", func(f *File, root *yaml.Node) {
			f.SetText(Get(root, "spec", "configBase"), "true")
		},
			"configBase: s3://state/blue.example.com", `configBase: "true"`},
		{"a value over two lines", func(f *File, root *yaml.Node) { f.Rewrite(Get(root, "spec", "folded"), green) },
			"this goes on\n    for blue.example.com lines", "this goes on for green.example.com lines"},
		{"a block of text", func(f *File, root *yaml.Node) {
			f.Rewrite(Get(Items(root, "spec", "hooks")[0], "manifest"), green)
		}, "--name blue.", "--name green."},
		{"another entry", func(f *File, root *yaml.Node) {
			f.Swap(Get(root, "spec", "networking"), "weave", "calico", "encapsulationMode: vxlan")
		}, "weave:\n      mtu: 8912", "calico:\n      encapsulationMode: vxlan"},
		{"an entry less", func(f *File, root *yaml.Node) { f.Remove(Items(root, "spec", "subnets")[0], "id") },
			"    id: subnet-1   # shared\n", ""},
		{"an entry less, behind a dash", func(f *File, root *yaml.Node) {
			f.Remove(Items(root, "spec", "subnets")[0], "cidr")
		},
			"- cidr: 172.20.32.0/19\n    id", "- id"},
		{"the only entry", func(f *File, root *yaml.Node) { f.Remove(Get(root, "spec", "networking"), "weave") },
			"weave:\n      mtu: 8912", "{}"},
		{"an entry more", func(f *File, root *yaml.Node) {
			f.Set(Get(root, "spec"), "rollingUpdate", "maxSurge: 100%")
		},
			"  subnets:\n", "  rollingUpdate:\n    maxSurge: 100%\n  subnets:\n"},
		{"an entry more, in order", func(f *File, root *yaml.Node) {
			f.Set(Items(root, "spec", "subnets")[0], "egress", "nat-1")
		},
			"19\n    id:", "19\n    egress: nat-1\n    id:"},
		{"an item less", func(f *File, root *yaml.Node) {
			list := Get(root, "spec", "hooks")
			f.RemoveItem(list, list.Content[1])
		}, "  - name: y\n", ""},
		{"a document less", func(f *File, _ *yaml.Node) { f.RemoveDocument(f.Roots()[1]) }, "---\nkind: Other\n", ""},
		{"another key", func(f *File, root *yaml.Node) { f.SetText(Get(root, "metadata"), "x") }, "", ""},
		{"an edit within what is removed", func(f *File, root *yaml.Node) {
			f.SetText(Get(root, "spec", "networking", "weave", "mtu"), "x")
			f.Remove(Get(root, "spec"), "networking")
		}, "  networking:\n    weave:\n      mtu: 8912\n", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.new == test.old { // refused
				f, err := Parse("in.yaml", []byte(sample))
				if err != nil {
					t.Fatal(err)
				}
				test.change(f, f.Roots()[0])
				if _, err := f.Bytes(); err == nil {
					t.Fatal("a mapping was given a text")
				}
				return
			}
			for _, end := range []string{"\n", "\r\n"} {
				text := strings.ReplaceAll(sample, "\n", end)
				want := strings.Replace(text, strings.ReplaceAll(test.old, "\n", end),
					strings.ReplaceAll(test.new, "\n", end), 1)
				if got := edited(t, text, test.change); got != want {
					t.Errorf("with line ends %q got\n%s\nwant\n%s", end, got, want)
				}
			}
		})
	}
}

func TestNoNewlineAtTheEnd(t *testing.T) {
	got := edited(t, "a: 1\nb:\n  c: x", func(f *File, root *yaml.Node) { f.Set(Get(root, "b"), "d", "y") })
	if want := "a: 1\nb:\n  c: x\n  d: y"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"a: &x 1\nb: *x\n":                   "in.yaml:1: an anchor or alias",
		"a: 1\nb:\n  - x\n y: 2\n":           "in.yaml:3: ",
		"a: 1\na: 2\n":                       "in.yaml:2: a stands here twice",
		"a: 1\n\xff: 2\n":                    "in.yaml:2: not UTF-8",
		"a: 1\nb: x\u2028y\n":                "in.yaml:2: a line separator",
		"? {x: 1}\n: 2\n":                    "in.yaml:1: a key that is not a word",
		strings.Repeat("[", 200):             "in.yaml",
		strings.Repeat("- ", 150) + "x":      "nested deeper",
		"a: 1\n<<: {b: 2}\n":                 "in.yaml:2: a key that is not a word",
		"a: '\n" + strings.Repeat("x", 1<<4): "in.yaml:",
	} {
		if _, err := Parse("in.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
	if _, err := Parse("in.yaml", make([]byte, MaxInput+1)); err == nil {
		t.Error("a text of any size is read")
	}
	f, err := Parse("in.yaml", []byte("a: 1\nspec: {weave: {}, mtu: 1}\n"))
	if err != nil {
		t.Fatal(err)
	}
	f.Remove(Get(f.Roots()[0], "spec"), "weave")
	if _, err := f.Bytes(); err == nil || !strings.Contains(err.Error(), "in.yaml:2: weave is written within braces") {
		t.Errorf("braces: %v", err)
	}
}

// FuzzEdit edits whatever can be read, in every place of it, and holds the editor to its promise: it refuses, or the
// text says what was meant, which Bytes itself proves.
func FuzzEdit(f *testing.F) {
	f.Add([]byte(sample), uint8(3), uint8(0), "x")
	f.Add([]byte("a:\n- b: 1\n  c: |+\n    x\n\n  d:\n  - - 1\n    - 2\n"), uint8(1), uint8(1), "- : {")
	f.Add([]byte("\"a b\": 'it''s'\n? c\n: >-\n   d\n   e\n"), uint8(2), uint8(2), "#")
	f.Add([]byte("a: {b: [1, \"}\"]} # }\nc: !!str 1\n"), uint8(2), uint8(3), "100%")
	f.Fuzz(func(t *testing.T, text []byte, where, how uint8, value string) {
		if len(text) > 1<<12 {
			return
		}
		file, err := Parse("in.yaml", text)
		if err != nil || len(file.Roots()) == 0 {
			return
		}
		var nodes []*yaml.Node
		var walk func(*yaml.Node)
		walk = func(node *yaml.Node) {
			nodes = append(nodes, node)
			for _, child := range node.Content {
				walk(child)
			}
		}
		for _, root := range file.Roots() {
			walk(root)
		}
		node := nodes[int(where)%len(nodes)]
		switch how % 6 {
		case 0:
			file.SetText(node, value)
		case 1:
			if len(node.Content) > 1 {
				file.Remove(node, node.Content[0].Value)
			}
		case 2:
			file.Set(node, value, "100%")
		case 3:
			file.Rewrite(node, func(text string) string { return strings.ReplaceAll(text, "a", value) })
		case 4:
			if len(node.Content) > 0 {
				file.RemoveItem(node, node.Content[len(node.Content)-1])
			}
		case 5:
			file.RemoveDocument(node)
		}
		file.Bytes() //nolint:errcheck // it proves or refuses; a panic is what is looked for
	})
}
