// Where the CPU backend is compiled once, there is nothing to pick. The build script says what it is compiled for.

const char * ggmlrs_cpu_level_error(void);
const char * ggmlrs_cpu_level_name(void);

const char * ggmlrs_cpu_level_error(void) {
    return 0;
}

const char * ggmlrs_cpu_level_name(void) {
    return GGMLRS_CPU_LEVEL;
}
