// Package usage is the form of commands: how many arguments they take, which forms of output they have, and how
// their help is laid out.
package usage
