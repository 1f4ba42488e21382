package cli

import (
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/interrupt"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/cli/usage"
)

var update = flag.Bool("update", false, "write docs/reference/commands.md")

const commandsPage = "../../docs/reference/commands.md"

func docsRoot() *cobra.Command {
	root := newRoot(Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}, "theseus",
		&interrupt.Signals{Err: io.Discard})
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	root.InitDefaultVersionFlag()
	return root
}

// TestCommandsPage compares docs/reference/commands.md with the command tree. With -update it writes the page.
func TestCommandsPage(t *testing.T) {
	for _, name := range []string{"THESEUS_AGENT_IMAGE", "THESEUS_IMAGE_REGISTRY",
		"THESEUS_KUBECONFIG", "THESEUS_CONTEXT"} {
		t.Setenv(name, "") // defaults come from the environment
	}
	var page strings.Builder
	page.WriteString("# Commands\n\nThis page is made from the code: `go test ./internal/cli -run " +
		"TestCommandsPage -update`.\n" +
		"[Conventions, environment and exit codes](command-line.md) are the same for all commands.\n")
	describe(&page, docsRoot())
	if *update {
		if err := os.WriteFile(commandsPage, []byte(page.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old, err := os.ReadFile(commandsPage)
	if err != nil {
		t.Fatal(err)
	}
	if string(old) != page.String() {
		t.Errorf("%s is stale: run go test ./internal/cli -run TestCommandsPage -update", commandsPage)
	}
}

// pageColumns is the width of a help text on the page, which is indented by four columns.
const pageColumns = 106

// unwrapped joins the lines of each paragraph and of each list item, which are broken for terminals.
func unwrapped(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if last := len(lines) - 1; last >= 0 && continues(lines[last], line) {
			lines[last] += " " + strings.TrimSpace(line)
		} else {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// continues says whether a line is of the same paragraph or list item as the one before. What is indented otherwise
// stays.
func continues(before, line string) bool {
	if strings.HasPrefix(before, "- ") {
		words, ok := strings.CutPrefix(line, "  ")
		return ok && words != "" && words[0] != ' '
	}
	prose := func(text string) bool { return text != "" && text[0] != ' ' && !strings.HasPrefix(text, "- ") }
	return prose(before) && prose(line)
}

// describe writes the help of a command and of those below it. Cobra's own commands (help, completion) are left out.
func describe(page *strings.Builder, command *cobra.Command) {
	if command.Name() == "help" || command.Name() == "completion" {
		return
	}
	command.InitDefaultHelpFlag()
	command.InitDefaultVersionFlag()
	fmt.Fprintf(page, "\n## %s\n\n%s.\n\n", command.CommandPath(), strings.TrimSuffix(command.Short, "."))
	var text strings.Builder
	command.SetOut(&text)
	if err := usage.Print(command, 100); err != nil {
		panic(err)
	}
	help, _, _ := strings.Cut(command.Long, exit.Help)
	help = terminal.Fold(unwrapped(strings.TrimSpace(help)), pageColumns)
	shown, _, _ := strings.Cut(text.String(), "\n\nGlobal Flags:")
	shown, _, _ = strings.Cut(shown, "\n\nUse \"")
	for line := range strings.SplitSeq(help+"\n\n"+strings.TrimSpace(shown), "\n") {
		page.WriteString(strings.TrimRight("    "+line, " ") + "\n")
	}
	for _, below := range command.Commands() {
		describe(page, below)
	}
}

// TestCommandsInDocs parses every `theseus ...` command of the documentation with the real command tree.
func TestCommandsInDocs(t *testing.T) {
	files := []string{"../../README.md", "../../CONTRIBUTING.md", "../../SECURITY.md"}
	if err := filepath.WalkDir("../../docs", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") && path != commandsPage {
			files = append(files, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range commandLines(string(text)) {
			seen++
			if err := parses(line.text, line.whole); err != nil {
				t.Errorf("%s: %s\n%v", file, line.text, err)
			}
		}
	}
	t.Logf("%d commands", seen)
}

// commandLine is a command in a page. One in a block of code is whole; one in the middle of a sentence may lack
// arguments.
type commandLine struct {
	text  string
	whole bool
}

var codeSpan = regexp.MustCompile("`(theseus [^`]+)`")

// commandLines finds the commands of a page, in blocks of code and in code spans.
func commandLines(page string) []commandLine {
	var found []commandLine
	page = strings.ReplaceAll(page, "\\\n", " ")
	for line := range strings.SplitSeq(page, "\n") {
		code := strings.HasPrefix(line, "    ")
		text := strings.TrimPrefix(strings.TrimSpace(line), "$ ")
		if code && strings.HasPrefix(text, "theseus ") {
			found = append(found, commandLine{text, true})
			continue
		}
		for _, span := range codeSpan.FindAllStringSubmatch(line, -1) {
			found = append(found, commandLine{span[1], false})
		}
	}
	return found
}

// parses tries a command line: its command exists, and so do its flags. A whole one has the arguments that it needs
// too.
func parses(line string, whole bool) error {
	var args []string
	for _, word := range words(line)[1:] {
		if word == "..." {
			whole = false
			continue
		}
		args = append(args, word)
	}
	command, rest, err := docsRoot().Find(args)
	if err != nil {
		return err
	}
	if err := command.ParseFlags(rest); err != nil {
		if !whole && strings.Contains(err.Error(), "needs an argument") {
			return nil
		}
		return err
	}
	if left := command.Flags().Args(); command.HasSubCommands() && len(left) > 0 && left[0] != "help" &&
		command.Flags().ArgsLenAtDash() != 0 {
		return fmt.Errorf("%s has no command %q", command.CommandPath(), left[0])
	}
	if !whole {
		return nil
	}
	return command.ValidateArgs(command.Flags().Args())
}

// words splits a line as a shell does, up to a comment, a pipe, a redirection or a second command.
func words(line string) []string {
	var all []string
	var word strings.Builder
	var quote rune
	inside := false
	end := func() {
		if inside {
			all = append(all, word.String())
		}
		word.Reset()
		inside = false
	}
	for _, c := range line {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, inside = c, true
		case quote == 0 && c == ' ':
			end()
		case quote == 0 && strings.ContainsRune("|>&;#", c) && !inside:
			return all
		default:
			word.WriteRune(c)
			inside = true
		}
	}
	end()
	return all
}

func TestWords(t *testing.T) {
	for line, want := range map[string]string{
		"theseus plan --to calico   # or flannel":            "theseus|plan|--to|calico",
		`theseus plan --because 'a b' --x "c d" -o p > file`: "theseus|plan|--because|a b|--x|c d|-o|p",
		"theseus rights plan | kubectl apply -f -":           "theseus|rights|plan",
	} {
		if got := strings.Join(words(line), "|"); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", line, got, want)
		}
	}
	for _, wrong := range []string{"theseus paln", "theseus plan --tp calico", "theseus mirror cpoy", "theseus apply"} {
		if parses(wrong, true) == nil {
			t.Errorf("%q parses", wrong)
		}
	}
}
