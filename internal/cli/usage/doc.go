// Package usage has the common form of commands: how many arguments they take, their output formats, and the layout of
// their help.
package usage
