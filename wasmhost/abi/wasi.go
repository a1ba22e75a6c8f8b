package abi

// WASI returns the functions of WASI preview 1 that work, with their types.
func WASI() []Function {
	return []Function{
		{"args_get", "ii", "i"},       // there are none
		{"args_sizes_get", "ii", "i"}, // there are none
		{"clock_res_get", "ii", "i"},
		{"clock_time_get", "ili", "i"},
		{"environ_get", "ii", "i"}, // only variables that the operator grants
		{"environ_sizes_get", "ii", "i"},
		{"fd_close", "i", "i"},
		{"fd_fdstat_get", "ii", "i"},
		{"fd_fdstat_set_flags", "ii", "i"}, // NONBLOCK
		{"fd_prestat_dir_name", "iii", "i"},
		{"fd_prestat_get", "ii", "i"}, // returns EBADF: there are no directories
		{"fd_read", "iiii", "i"},
		{"fd_write", "iiii", "i"},
		{"poll_oneoff", "iiii", "i"},
		{"proc_exit", "i", ""}, // ends the instance; the attempt is Unknown
		{"random_get", "ii", "i"},
		{"sched_yield", "", "i"},
		{"sock_recv", "iiiiii", "i"},
		{"sock_send", "iiiii", "i"},
		{"sock_shutdown", "ii", "i"},
	}
}

// WASIRefused returns the functions of WASI preview 1 that always return ENOSYS. A plugin may
// import them, because libraries do.
func WASIRefused() []Function {
	return []Function{
		{"fd_advise", "illi", "i"},
		{"fd_allocate", "ill", "i"},
		{"fd_datasync", "i", "i"},
		{"fd_fdstat_set_rights", "ill", "i"},
		{"fd_filestat_get", "ii", "i"},
		{"fd_filestat_set_size", "il", "i"},
		{"fd_filestat_set_times", "illi", "i"},
		{"fd_pread", "iiili", "i"},
		{"fd_pwrite", "iiili", "i"},
		{"fd_readdir", "iiili", "i"},
		{"fd_renumber", "ii", "i"},
		{"fd_seek", "ilii", "i"},
		{"fd_sync", "i", "i"},
		{"fd_tell", "ii", "i"},
		{"path_create_directory", "iii", "i"},
		{"path_filestat_get", "iiiii", "i"},
		{"path_filestat_set_times", "iiiilli", "i"},
		{"path_link", "iiiiiii", "i"},
		{"path_open", "iiiiillii", "i"},
		{"path_readlink", "iiiiii", "i"},
		{"path_remove_directory", "iii", "i"},
		{"path_rename", "iiiiii", "i"},
		{"path_symlink", "iiiii", "i"},
		{"path_unlink_file", "iii", "i"},
		{"proc_raise", "i", "i"},
		{"sock_accept", "iii", "i"},
	}
}
