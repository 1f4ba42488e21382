// Package control has the commands about a migration that has begun: `theseus status`, `theseus pause`, `theseus
// resume` and `theseus rollback`.
package control
